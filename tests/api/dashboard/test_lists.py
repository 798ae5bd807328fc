"""Lists are searched by what people remember of a change."""

import re

import pytest

from tests.api.routes.test_reward import registered
from tests.clients.owner import Owner

CHANGES = {
    "1" * 40: {"message": "Shorten the checkout", "author": "ada", "branch": "checkout"},
    "2" * 40: {"message": "Bigger buttons, 100%", "author": "grace", "branch": "buttons"},
}


@pytest.fixture
def ids(owner: Owner) -> list[str]:
    """An experiment on each change, in the order of the changes."""
    owner.service.post("/v1/deploys", {"commit": {"sha": "a" * 40}})
    found: list[str] = []
    for (sha, commit), metric in zip(CHANGES.items(), ("order", "signup"), strict=True):
        body = {
            "commit": {"sha": sha, **commit},
            "allocation": 0.1,
            "diff": {"base_commit": "a" * 40},
        }
        answer = owner.service.post("/v1/deploys", body)
        assert answer.status_code == 201, answer.text
        found.append(registered(owner.service, target_metric=metric))
    return found


def listed(owner: Owner, query: str) -> list[str]:
    page = owner.page(f"/dashboard/experiments?{query}")
    return re.findall(r'"/dashboard/experiments/(exp_\w+)"', page)


@pytest.mark.parametrize(
    ("words", "which"),
    [
        ("order", [0]),
        ("CHECKOUT", [0]),
        ("grace", [1]),
        ("22222222", [1]),
        ("bigger+signup", [1]),
        ("bigger+order", []),
        ("production", [1, 0]),
        ("100%25", [1]),
        ("%25", [1]),
        ("ord_r", []),
        ("%00", [1, 0]),
    ],
)
def test_experiments_are_found_by_all_the_words(owner, ids, words: str, which: list[int]) -> None:
    assert listed(owner, f"q={words}") == [ids[number] for number in which]


def test_a_search_keeps_the_state_and_says_when_nothing_is_found(owner, ids) -> None:
    assert listed(owner, "q=order&state=running") == ids[:1]
    nothing = owner.page("/dashboard/experiments?q=order%3Cb%3E&state=decided")
    assert "No decided experiment has “order&lt;b&gt;”" in nothing
    assert '<input type="hidden" name="state" value="decided">' in nothing
    assert 'href="/dashboard/experiments?state=running&amp;q=order%3Cb%3E"' in nothing


@pytest.mark.usefixtures("ids")
def test_deploys_are_found_by_commit_author_and_branch(owner) -> None:
    for words in ("ada", "checkout", "1111111"):
        page = owner.page(f"/dashboard/deploys?q={words}")
        assert "Shorten the checkout" in page
        assert "Bigger buttons" not in page
    assert "No deploy has “nobody”" in owner.page("/dashboard/deploys?q=nobody")


def test_an_older_page_is_of_the_same_search(owner) -> None:
    for number in range(31):
        commit = {"sha": f"{number:040x}", "message": "Another try"}
        owner.service.post("/v1/deploys", {"commit": commit, "allocation": 0.1})
    first = owner.page("/dashboard/deploys?q=another+try")
    (older,) = re.findall(r'href="(/dashboard/deploys\?[^"]+)" rel="next"', first)
    page = owner.page(older.replace("&amp;", "&"))
    assert page.count("Another try") == 1
    assert 'href="/dashboard/deploys?q=another+try"' in page
