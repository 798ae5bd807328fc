"""No room grows, unless another shrinks by as much: sizes.toml holds the lines of each.

A limit falls with its room, by `python -m tests.test_size`. Who needs more lines somewhere takes as
many from another room by hand, in the same commit, or from the reserve: lines that earlier commits
took out for what comes next.
"""

import subprocess
import tomllib
from collections import Counter
from pathlib import PurePosixPath

import pytest

from tests.architecture import PACKAGES, ROOT

PAGE = ROOT / "sizes.toml"
_COUNTED = {".py", ".sql", ".js", ".mjs"}
RESERVE = "reserve"
# What a newcomer may have to read: README, CONTRIBUTING, CHANGELOG and docs.
_MOST_WORDS, _MOST_PAGES = 60_000, 32
_HEAD = """\
# The most lines that each room may have: Python, SQL and JavaScript, with docstrings and comments.
# A number only falls, unless the same commit lowers others by as much (tests/test_size.py).
# `python -m tests.test_size` lowers the numbers to the lines that there are.
"""


def sizes() -> dict[str, int]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = Counter[str]()
    for name in listed.stdout.splitlines():
        path = PurePosixPath(name)
        if (
            path.suffix in _COUNTED
            and path.parts[0] in {*PACKAGES, "tests"}
            and (ROOT / name).is_file()
        ):
            room = "/".join(path.parts[:2]) if len(path.parts) > 2 else path.parts[0]
            lines[room] += (ROOT / name).read_text().count("\n")
    return dict(lines)


def limits(text: str | None = None) -> dict[str, int]:
    """Returns the limits of the rooms, or those of another text of the page."""
    return tomllib.loads(PAGE.read_text() if text is None else text)["lines"]


def page(lines: dict[str, int]) -> str:
    rows = (f'"{room}" = {count}\n' for room, count in sorted(lines.items()))
    return f"{_HEAD}\n[lines]\n{''.join(rows)}"


# Lines that a room may stay below its limit: not each commit that removes some moves a number.
SLACK = 50


def test_no_room_has_more_lines_than_its_limit() -> None:
    known = limits()
    above = {room: count for room, count in sizes().items() if count > known.get(room, 0)}
    assert above == {}, "take as much from another room, and move the number in sizes.toml"


def test_no_limit_is_left_far_above_a_room_that_shrank() -> None:
    lines = sizes()
    loose = {
        room: limit
        for room, limit in limits().items()
        if room != RESERVE and limit > lines.get(room, 0) + SLACK
    }
    assert loose == {}, "run python -m tests.test_size"


@pytest.mark.parametrize("commit", ["HEAD", "HEAD^"])
def test_the_limits_together_never_rise(commit) -> None:
    before = subprocess.run(
        ["git", "show", f"{commit}:{PAGE.name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if before.returncode:
        pytest.skip(f"{commit} has no {PAGE.name}, or this is no whole clone")
    assert sum(limits().values()) <= sum(limits(before.stdout).values())


def test_the_pages_stay_short_and_few() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(pages) <= _MOST_PAGES
    assert sum(len(path.read_text().split()) for path in pages) <= _MOST_WORDS


if __name__ == "__main__":
    known = limits() if PAGE.is_file() else {}
    kept = {RESERVE: known[RESERVE]} if RESERVE in known else {}
    PAGE.write_text(page(kept | {room: min(known.get(room, n), n) for room, n in sizes().items()}))
