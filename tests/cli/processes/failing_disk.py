"""Writes below a folder that fail with a number of errno, in a process and all its children."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest


class FailingDisk:
    """Failures of calls that libc makes for a program; made by a library loaded before it."""

    def __init__(self, folder: Path) -> None:
        """Builds the library in a folder that any user may read; skips where nothing builds it."""
        self._order = folder / "failing_disk.order"
        self._library = folder / "failing_disk.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("only a C compiler, cc or gcc, builds what lets writes fail")
        source = Path(__file__).with_suffix(".c")
        command = [compiler, "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True, timeout=60)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of a program whose writes are to fail on demand."""
        return {"LD_PRELOAD": str(self._library), "FAILING_DISK": str(self._order)}

    def fail(self, number: int, below: Path) -> None:
        draft = self._order.with_suffix(".draft")
        draft.write_text(f"{number} {below}")
        draft.chmod(0o644)
        draft.replace(self._order)

    def heal(self) -> None:
        self._order.unlink(missing_ok=True)
