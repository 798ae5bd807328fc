"""The command: how a printed line calls this program in the reader's shell."""

import shlex
import sys
from pathlib import Path
from shutil import which

_NAME = "deploy-reward"


def command_name() -> str:
    """Returns the program's name, or its path where the shell would not find it by its name."""
    installed = Path(sys.executable).parent / _NAME
    known = which(_NAME)
    is_known = known is not None and Path(known).resolve() == installed.resolve()
    return _NAME if is_known or not installed.exists() else shlex.quote(str(installed))
