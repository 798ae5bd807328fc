"""The gate runs every test that is not long, on what the lock names, and says how it ended."""

import re
import sys
from pathlib import Path

import pytest

from tests import gate
from tests.architecture import TESTS
from tests.gate import Stage, passes
from tests.near import near_tests

ROOT = Path(__file__).parents[1]


def stage(name: str, *codes: int) -> Stage:
    """A stage whose commands end with these exit codes."""
    return Stage(name=name, commands=[[sys.executable, "-c", f"exit({code})"] for code in codes])


def test_a_stage_that_fails_hides_none_of_the_later_ones(capfd) -> None:
    assert not passes([stage("first", 0), stage("second", 1, 0), stage("third", 0)])
    table = [line.split() for line in capfd.readouterr().out.splitlines()[-4:]]
    assert [row[1:] for row in table[:3]] == [
        ["passed", "first"],
        ["FAILED", "second"],
        ["passed", "third"],
    ]
    times = [float(row[0]) for row in table]
    assert times[3] == pytest.approx(sum(times[:3]), abs=0.2)


def test_the_gate_passes_where_all_its_stages_do() -> None:
    assert passes([stage("first", 0), stage("second", 0, 0)])


def test_no_process_of_a_stage_compiles_what_another_one_has_compiled(monkeypatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    words = [sys.executable, "-c", "import sys; exit(sys.dont_write_bytecode)"]
    assert passes([Stage(name="first", commands=[words])])


def test_every_test_stands_in_a_stage() -> None:
    (command,) = gate.TESTS.commands
    selected = {word for word in command if word.startswith(("tests/", "examples/", "benchmarks/"))}
    files = [path.relative_to(ROOT) for root in TESTS for path in root.rglob("test_*.py")]
    rooms = {Path(name) for name in selected}
    assert [file for file in files if not rooms & {file, *file.parents}] == []


def test_each_file_that_the_makefile_names_is_there() -> None:
    words = re.split(r"[\s'\"]+", (ROOT / "Makefile").read_text())
    named = [word for word in words if word.startswith(("tests/", "benchmarks/", "packages/"))]
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_near_tests_are_those_that_reach_a_change_its_own_room_first_and_stores_last() -> None:
    near = near_tests(["stats/gates/vif.py"])
    rings = {test.file: test.ring for test in near}
    assert near[0].file == "tests/stats/gates/test_vif.py"
    assert rings["tests/stats/decision/test_verdict.py"] == 1
    assert rings["benchmarks/calibration/tests/test_report.py"] == 2
    assert rings["tests/pipeline/scenarios/test_scenarios.py"] == 3
    assert "tests/domain/test_route.py" not in rings


def test_the_lock_holds_the_constraints_versions_with_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    constraints = (ROOT / "constraints.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", constraints, re.MULTILINE))
    locked = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;]+)(.*(?:\n .*)+)", lock, re.MULTILINE)
    assert len(locked) > 100
    assert [name for name, version, _ in locked if pinned.get(name) != version] == []
    assert [name for name, _, rest in locked if "--hash=sha256:" not in rest] == []
    for text in (lock, constraints):
        assert "://" not in text
        assert not re.search(r"^-", text, re.MULTILINE)
