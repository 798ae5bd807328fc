"""The map of the source is true, and no room holds more than a reader can take in at once."""

import re
from collections import Counter

import pytest

from tests.architecture import COMMAND, PAGE, ROOT, architecture, docstring, rooms

# architecture.md of the design: "no folder shows more than about fifteen files".
MOST_FILES = 15


def test_the_map_is_up_to_date_to_the_byte() -> None:
    assert PAGE.read_text() == architecture(), f"run {COMMAND}"


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.relative_to(ROOT).as_posix())
def test_a_room_shows_few_files_and_says_what_is_inside(room) -> None:
    files = [path for path in room.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= MOST_FILES
    assert docstring(room / "__init__.py")
    assert all(docstring(path) for path in files)


def test_a_room_of_the_tests_shows_few_files() -> None:
    tests = ROOT / "tests"
    paths = (path for path in tests.rglob("*") if "__pycache__" not in path.parts)
    files = (path.parent.relative_to(tests).as_posix() for path in paths if path.is_file())
    rooms = Counter(files)
    assert {name: count for name, count in rooms.items() if count > MOST_FILES} == {}


def test_the_files_on_the_way_of_an_event_are_there() -> None:
    way = architecture().split("## The way of an event")[1].split("\n## ")[0]
    named = re.findall(r"`([a-z_/]+\.py)`", way)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_sql_reads_a_frozen_policy_in_one_file_alone() -> None:
    reads = re.compile(r"\bpolicy\b['\"]?\s*(->|#>|#-|\?)|jsonb_exists\(x\.policy")
    files = [path for path in (ROOT / "storage").rglob("*.py") if reads.search(path.read_text())]
    assert [path.name for path in files] == ["policy_columns.py"]


def test_no_private_module_of_a_library_is_imported() -> None:
    private = re.compile(r"^\s*(?:from|import) \w+(?:\.\w+)*\._", re.MULTILINE)
    files = (path for room in rooms() for path in room.glob("*.py"))
    assert [path.name for path in files if private.search(path.read_text())] == []
