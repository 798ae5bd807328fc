"""`forget` erases a person, through the highest faces: REST in, the command, and what is served."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import text

from tests.world import at

A, K = "aaaaaaa", "bbbbbbb"
USER = "somebody@example.org"
CANARY = "a word that nobody else says"


@pytest.fixture
def shop(stored, monkeypatch) -> Any:
    """The service with the secret that its API has."""
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
    return stored


@pytest.fixture
def experiment(shop, command) -> str:
    """An experiment with a published look: a session a minute, two of which are a user's."""
    shop.deploy(A, 0.5, minutes=-1440)
    shop.deploy(K, 0.5, minutes=0, base=A)
    events = [
        {
            "event": event,
            "session_id": f"session-{number:03}",
            "commit": K if number % 2 else A,
            "occurred_at": at(number + after),
        }
        for number in range(120)
        for event, after in (("page_view", 0), ("order", 0.5))
        if event == "page_view" or number % 3 == 0
    ]
    for event in events:
        if event["session_id"] in {"session-030", "session-041"}:
            event |= {"user_ref": USER, "properties": {"note": CANARY}}
    answer = shop.post("/v1/events?replay=true", {"events": events})
    assert answer.json()["accepted"] == len(events)
    paid = {
        "event": "trial_to_paid",
        "occurred_at": at(55),
        "user_ref": USER,
        "idempotency_key": "k1",
        "amount": {"value": 1900, "currency": "EUR"},
        "attributes": {"note": CANARY},
    }
    assert shop.post("/v1/revenue/events?replay=true", {"events": [paid]}).status_code == 200
    asked = {"treatment_commit": K, "target_metric": "order", "guardrails": ["trial_to_paid"]}
    registered = shop.post("/v1/reward/register", asked)
    assert command("evaluate").exit_code == 0
    return registered.json()["experiment_id"]


def served(shop: Any, experiment: str) -> tuple[bytes, bytes]:
    return (
        shop.get(f"/v1/reward/{experiment}").content,
        shop.get(f"/v1/reward/{experiment}/evidence").content,
    )


def stored_texts(shop: Any) -> Iterator[str]:
    """Every row of every table, and what the planner keeps of them."""
    with shop.store.engine.begin() as connection:
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'deploy_reward'"
        for table in connection.execute(text(tables)).scalars().all():
            yield from connection.execute(text(f"SELECT t::text FROM {table} AS t")).scalars()
        samples = "SELECT s::text FROM pg_stats AS s WHERE schemaname = 'deploy_reward'"
        yield from connection.execute(text(samples)).scalars()


def names_found(shop: Any) -> set[str]:
    names = {"session-030", "session-041", CANARY, USER, "session-042"}
    return {name for name in names for row in stored_texts(shop) if name in row}


def test_an_account_is_forgotten_by_its_name_where_the_project_counts_accounts(
    shop, command
) -> None:
    forget = ("forget", "--unit", "acme", "--project", "shop", "--json")
    refused = command(*forget)
    assert refused.exit_code == 2
    assert "the project's setting unit names no property" in refused.output
    shop.settings(unit="account")
    events = [
        {"event": "page_view", "session_id": f"of-{name}", "properties": {"account": name}}
        for name in ("acme", "other")
    ]
    assert shop.post("/v1/events", {"events": events}).status_code == 202
    erased = json.loads(command(*forget).stdout)
    assert (erased["runtime_events"], erased["sessions"]) == (1, 1)
    rows = [*stored_texts(shop)]
    assert [any(f"of-{name}" in row for row in rows) for name in ("acme", "other")] == [False, True]


def test_a_forgotten_user_is_in_no_table_and_no_answer_changes(shop, command, experiment) -> None:
    with shop.store.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("ANALYZE"))
    assert names_found(shop) >= {"session-030", "session-041", CANARY, "session-042"}
    before = served(shop, experiment)
    assert json.loads(before[1])["arms"]["treatment"]["units"] == 60

    result = command("forget", "--user-ref", USER, "--project", "shop", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    evidence = json.loads(result.stdout)
    assert evidence["tables"]
    assert {name: count for name, count in evidence.items() if name != "tables"} == {
        "users": 1,
        "sessions": 2,
        "kept_sessions": 0,
        "runtime_events": 3,
        "revenue_events": 1,
        "exposures": 2,
        "files": 0,
        "wrong_files": 0,
        "not_computed": [],
    }
    assert names_found(shop) == {"session-042"}
    assert served(shop, experiment) == before
    assert command("audit", experiment).exit_code == 0

    assert command("rebuild").exit_code == 0
    assert served(shop, experiment) == before
    assert command("audit", experiment).exit_code == 0
    assert names_found(shop) == {"session-042"}
    # That somebody was forgotten is remembered, once, but not who.
    command("forget", "--user-ref", USER, "--project", "shop")
    rows = shop.in_store(lambda c: c.execute(text("SELECT * FROM forgettings")).mappings().all())
    (row,) = ({**row, "forgotten_at": None} for row in rows)
    assert row == {
        "project_id": shop.project_id,
        "forgotten_at": None,
        "kind": "user_ref",
        "runtime_events": 3,
        "revenue_events": 1,
        "exposures": 2,
    }


@pytest.mark.nightly
def test_a_forgotten_session_is_in_no_table(shop, command, experiment) -> None:
    before = served(shop, experiment)
    result = command("forget", "--session", "session-042", "--project", "shop")
    assert result.stdout == (
        "Erased 2 runtime events and 0 revenue events of 0 user references and 1 sessions;"
        " 1 exposures stay in counts without a name.\n"
    )
    assert "session-042" not in names_found(shop)
    assert served(shop, experiment) == before
    assert command("audit", experiment).exit_code == 0
    again = command("forget", "--session", "session-042", "--project", "shop")
    assert again.stdout == "Nothing is stored of this person in the database.\n"


@pytest.fixture
def household(shop) -> list[str]:
    """Six users whom events by write key tie together, session after session."""
    users = [f"user-{number}" for number in range(6)]
    events = [
        {"event": "login", "session_id": f"tablet-{number}", "user_ref": user}
        for number, pair in enumerate(pairwise(users))
        for user in pair
    ]
    assert shop.post("/v1/events", {"events": events}).json()["accepted"] == 10
    return users


def test_many_users_are_erased_only_by_who_says_so(shop, command, household) -> None:
    words = ("forget", "--user-ref", household[0], "--project", "shop")
    asked = command(*words)
    assert asked.exit_code == 1
    assert asked.stderr == (
        "Error: this erases 6 user references and 5 sessions that the write key ties together,"
        " with 10 runtime events and 0 revenue events: nothing is erased without --yes\n"
    )
    assert "tablet-0" in "".join(stored_texts(shop))
    done = command(*words, "--yes")
    assert done.exit_code == 0
    assert done.stdout.startswith("Erased 10 runtime events")
    assert "tablet-" not in "".join(stored_texts(shop))


def at_a_terminal(answer: str, *words: str) -> tuple[int, str]:
    """The exit code of a command whose question is answered, and what it asked."""
    ours, its = pty.openpty()
    program = [sys.executable, "-c", "from cli.main import main; main()", *words]
    with subprocess.Popen(program, stdin=its, stderr=subprocess.PIPE, text=True) as process:
        os.write(ours, f"{answer}\n".encode())
        _, asked = process.communicate(timeout=120)
    os.close(ours)
    os.close(its)
    return process.returncode, asked


@pytest.mark.nightly
def test_at_a_terminal_one_is_asked_before_many_users_are_erased(shop, household) -> None:
    words = ("forget", "--user-ref", household[0], "--project", "shop")
    code, asked = at_a_terminal("n", *words)
    assert code == 1
    assert "This erases 6 user references" in asked
    assert "Go on? [y/N]" in asked
    assert "tablet-0" in "".join(stored_texts(shop))
    assert at_a_terminal("y", *words)[0] == 0
    assert "tablet-" not in "".join(stored_texts(shop))


@pytest.mark.usefixtures("stored")
def test_without_the_secret_that_knows_a_user_nothing_is_tried(
    command, monkeypatch, tmp_path
) -> None:
    monkeypatch.delenv("SERVICE_SECRET", raising=False)
    words = ("--user-ref", USER, "--project", "shop", "--data-dir", tmp_path)
    result = command("forget", *words)
    assert result.exit_code == 1
    assert "SERVICE_SECRET is not set" in result.stderr
    assert not (tmp_path / "secret").exists()
    assert USER not in result.output


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("words", [(), ("--user-ref", "a", "--session", "b")])
def test_a_person_is_named_in_one_way(command, words) -> None:
    result = command("forget", *words)
    assert result.exit_code == 2
    assert "name the person by --user-ref, --session or --unit" in result.stderr
