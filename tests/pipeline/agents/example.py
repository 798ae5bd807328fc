"""The program of `examples/agent`, loaded as a module: it is no part of any package."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

_PROGRAM = Path(__file__).parents[3] / "examples" / "agent" / "agent.py"


def loaded_agent() -> Any:
    spec = importlib.util.spec_from_file_location("agent", _PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = module
    spec.loader.exec_module(module)
    return module
