"""dbt, as PyPI has it, writes the manifest that the tests of `metrics` read."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dbt_metrics import read_metrics

from tests.processes.registry import python_of

pytestmark = [pytest.mark.process, pytest.mark.world, pytest.mark.timeout(900)]

PROJECT = Path(__file__).with_name("dbt_project")
MANIFEST = Path(__file__).parents[2] / "packages/dbt-metrics/tests/dbt_manifest.json"
# dbt 2 is another program, whose wheel on PyPI downloads the rest from elsewhere.
PACKAGES = ("dbt-core>=1.11,<1.12", "dbt-duckdb>=1.9")


def test_dbt_s_own_manifests_are_read_as_the_tests_of_metrics_read_theirs(tmp_path) -> None:
    python = python_of(tmp_path / "venv", PACKAGES)
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder)
    quiet = {"DBT_PROFILES_DIR": str(folder), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    words = [python.with_name("dbt"), "--quiet", "build"]
    subprocess.run(words, cwd=folder, env=os.environ | quiet, check=True)
    manifest = (folder / "target" / "manifest.json").read_bytes()
    semantic = (folder / "target" / "semantic_manifest.json").read_bytes()
    written, read = read_metrics(MANIFEST.read_bytes()), read_metrics(manifest)
    assert (read.unit, read.expressed) == (written.unit, written.expressed)
    assert read.queries() == written.queries()
    assert read_metrics(manifest, semantic).expressed == written.expressed
    assert members(manifest) >= members(MANIFEST.read_bytes())


def members(manifest: bytes) -> set[str]:
    """The names of the members that hold anything."""

    def walk(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {*value}.union(*map(walk, value.values()))
        return set[str]().union(*map(walk, value)) if isinstance(value, list) else set()

    document = json.loads(manifest)
    return walk([*map(document.get, ("semantic_models", "metrics"))])
