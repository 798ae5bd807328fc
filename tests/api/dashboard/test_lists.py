"""Lists are searched by what people remember of a change."""

import re
from collections.abc import Callable

import pytest

from tests.clients.owner import Owner

CHANGES = {
    "1" * 40: {"message": "Shorten the checkout", "author": "ada", "branch": "checkout"},
    "2" * 40: {"message": "Bigger buttons, 100%", "author": "grace", "branch": "buttons"},
}


@pytest.fixture
def ids(owner) -> list[str]:
    """An experiment on each change, in the order of the changes."""
    owner.service.deploy("a" * 40)
    experiments: list[str] = []
    for (sha, commit), metric in zip(CHANGES.items(), ("order", "signup"), strict=True):
        owner.service.deploy(sha, 0.1, base="a" * 40, commit=commit)
        experiments.append(owner.service.register(target_metric=metric))
    return experiments


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
def test_experiments_are_found_by_all_the_words(owner, ids, words, which) -> None:
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
        owner.service.deploy(f"a{number:039x}", 0.1, commit={"message": "Another try"})
    first = owner.page("/dashboard/deploys?q=another+try")
    (older,) = re.findall(r'href="(/dashboard/deploys\?[^"]+)" rel="next"', first)
    page = owner.page(older.replace("&amp;", "&"))
    assert page.count("Another try") == 1
    assert 'href="/dashboard/deploys?q=another+try"' in page


ROW = re.compile(
    r'  <li>\n    <a href="/dashboard/deploys/(dep_\w+)">(.*?)</a>(.*?)\n  </li>', re.DOTALL
)
STEP = re.compile(r'<li><a href="/dashboard/deploys/(dep_\w+)">(.*?)</a>')


@pytest.fixture
def deployed(owner) -> Callable[..., str]:
    """Records a step of a change at an hour, and returns its deploy."""

    def deploy(sha: str, hour: int, share: float | None, **commit: str) -> str:
        at = f"2026-01-31T{hour:02}:00:00Z"
        record = owner.service.deploy(sha * 40, share, deployed_at=at, commit=commit)
        return record["deploy_id"]

    return deploy


Deployed = Callable[..., str]


def rows(owner: Owner, query: str = "") -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Each row of the list: where it leads, its title, and its steps."""
    page = owner.page(f"/dashboard/deploys{query}")
    return [(place, title, STEP.findall(rest)) for place, title, rest in ROW.findall(page)]


class TestARamp:
    def test_is_one_row_with_its_steps_whatever_came_between(self, owner, deployed) -> None:
        first = deployed("1", 9, 0.1, message="Shorten the checkout", author="ada")
        second = deployed("1", 10, 0.25)
        hotfix = deployed("2", 11, None, message="Mend the login")
        third = deployed("1", 12, 0.5)
        last = deployed("1", 13, 1)
        shares = ["10\u202f%", "25\u202f%", "50\u202f%", "all"]
        steps = list(zip((first, second, third, last), shares, strict=True))
        assert rows(owner) == [
            (last, "Shorten the checkout", steps),
            (hotfix, "Mend the login", []),
        ]
        # What its first step said stands in the row, and a search for it shows the row.
        page = owner.page("/dashboard/deploys?q=shorten+ada")
        assert page.count("Shorten the checkout") == 1
        assert "<span>ada</span>" in page
        overview = owner.page("/dashboard")
        assert overview.count(">Shorten the checkout</a>") == 1
        assert STEP.findall(overview) == steps

    def test_is_whole_on_the_page_of_each_of_its_steps(self, owner, deployed) -> None:
        before = deployed("1", 7, 0.3)
        deployed("1", 8, 0)
        ids = [deployed("1", hour, share) for hour, share in ((9, 0.1), (11, 0.5), (13, 1))]
        alone = deployed("2", 12, None)
        again = deployed("1", 14, 0.2)
        for deploy_id in ids:
            page = owner.page(f"/dashboard/deploys/{deploy_id}")
            assert re.findall(r'<li><a href="/dashboard/deploys/(dep_\w+)"', page) == ids
            (marked,) = re.findall(r'deploys/(dep_\w+)" aria-current="page"', page)
            assert marked == deploy_id
        for deploy_id in (alone, again):
            assert "Steps of the ramp" not in owner.page(f"/dashboard/deploys/{deploy_id}")
        assert "30\u202f%" in owner.page(f"/dashboard/deploys/{before}")

    def test_ends_where_it_is_withdrawn_or_given_to_all(self, owner, deployed) -> None:
        tried, withdrawn = deployed("1", 9, 0.1), deployed("1", 10, 0)
        again, to_all = deployed("1", 11, 0.2), deployed("1", 12, 1)
        later = deployed("1", 13, 0.3)
        undeclared = deployed("1", 14, None)
        assert [(place, steps) for place, _, steps in rows(owner)] == [
            (undeclared, [(later, "30\u202f%"), (undeclared, "no share")]),
            (to_all, [(again, "20\u202f%"), (to_all, "all")]),
            (withdrawn, [(tried, "10\u202f%"), (withdrawn, "withdrawn")]),
        ]

    def test_of_many_steps_shows_the_latest(self, owner, deployed) -> None:
        ids = [deployed("1", hour, (1 + hour) / 100) for hour in range(10)]
        ((place, _, steps),) = rows(owner)
        assert place == ids[-1]
        assert [step for step, _ in steps] == ids[-6:]
        assert "4 earlier" in owner.page("/dashboard/deploys")

    def test_does_not_count_the_steps_that_it_has_not_read(self, owner) -> None:
        for minute in range(25):
            at = f"2026-01-31T09:{minute:02}:00Z"
            owner.service.deploy("1" * 40, (1 + minute) / 100, deployed_at=at)
        assert "18 and more earlier" in owner.page("/dashboard/deploys")

    def test_is_of_one_environment(self, owner, deployed) -> None:
        deployed("1", 9, 0.1)
        owner.service.deploy("1" * 40, 0.5, environment="staging")
        assert [steps for _, _, steps in rows(owner)] == [[], []]

    def test_takes_one_place_of_a_page(self, owner) -> None:
        for number in range(31):
            for hour, share in ((9, 0.1), (10, 0.5)):
                at = f"2026-01-{number + 1:02}T{hour:02}:00:00Z"
                owner.service.deploy(f"a{number:039x}", share, deployed_at=at)
        page = rows(owner)
        assert len(page) == 30
        assert all(len(steps) == 2 for _, _, steps in page)
        assert len(rows(owner, f"?before={page[-1][0]}")) == 1
