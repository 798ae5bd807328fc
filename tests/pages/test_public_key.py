"""The page on the public key has a row for every endpoint, command and reading, held by tests."""

import inspect
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from cli.main import main
from domain.policy import Member
from storage.experiments import policy
from tests.api.routes.test_tenants import APP, routes_of
from tests.mutants.test_mutants import names_of_tests
from tests.pages.test_docs import every_command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "public-key.md").read_text()
# Members that the request reads from events; the freeze asks the log for all others.
OF_THE_REQUEST = {"target", "control", "attempt"}
_QUESTION = re.compile(r'(?:_ask\(|question, \w+ = )(?:f?"([a-z ]+?)(?: of \{|")|(SLOW))')


def questions() -> set[str]:
    """The questions that a freeze may ask the log."""
    return {(name or slow).lower() for name, slow in _QUESTION.findall(inspect.getsource(policy))}


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
        ("Readings", questions() | OF_THE_REQUEST),
    ],
)
def test_the_page_has_one_row_for_each_endpoint_command_and_reading(heading, names) -> None:
    written = Counter(name for first, *_ in rows(heading) for name in first)
    assert written == Counter(names)


def test_whatever_a_policy_notes_of_the_past_is_a_question() -> None:
    assert {*get_args(Member)} <= questions()


@pytest.mark.parametrize("heading", ["Endpoints", "Commands", "Readings"])
def test_each_row_names_tests_that_exist(heading) -> None:
    for *_, tests in rows(heading):
        assert tests
        for test in tests:
            file, _, name = test.partition("::")
            assert name in names_of_tests(ROOT / "tests" / file), test
