"""The page on the public key has a row for every endpoint, command and reading, held by tests."""

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from cli.main import main
from domain.policy import Member
from tests.api.routes.test_tenants import APP, routes_of
from tests.mutants.test_mutants import names_of_tests
from tests.pages.test_docs import every_command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "public-key.md").read_text()


def rows(heading: str) -> list[list[list[str]]]:
    """The rows of a section's table: of each cell what stands between backticks."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\|(.+)\|$", section, re.MULTILINE)[2:]
    return [[re.findall(r"`([^`]+)`", cell) for cell in line.split("|")] for line in lines]


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        # Who may read a page may ask for its head.
        ("Endpoints", {" ".join(way) for way in routes_of(APP.routes) if way[0] != "HEAD"}),
        ("Commands", set(every_command(main))),
        ("Readings", set(get_args(Member))),
    ],
)
def test_the_page_has_one_row_for_each_endpoint_command_and_reading(heading, names) -> None:
    written = Counter(name for first, *_ in rows(heading) for name in first)
    assert written == Counter(names)


@pytest.mark.parametrize("heading", ["Endpoints", "Commands", "Readings"])
def test_each_row_names_tests_that_exist(heading) -> None:
    for *_, tests in rows(heading):
        assert tests
        for test in tests:
            file, _, name = test.partition("::")
            assert name in names_of_tests(ROOT / "tests" / file), test
