"""`audit` says equal, different or gone, in words, in JSON and by its exit code."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from orchestration.pipeline.drafts import draft_evidence
from storage.pipeline import differing_rows
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import closed_instant
from storage.verdicts.publication import publish_verdicts, stage_evidence

A, K = "aaaaaaa", "bbbbbbb"
START = datetime(2026, 10, 1, tzinfo=UTC)


@pytest.fixture
def experiment(stored: Any) -> str:
    """An experiment with a published look: two hours of a canary, a unit a minute."""
    for sha, at, base in ((A, START - timedelta(days=1), None), (K, START, A)):
        body = {"commit": {"sha": sha}, "deployed_at": at.isoformat()}
        diff = {} if base is None else {"diff": {"base_commit": base, "files": []}}
        assert stored.post("/v1/deploys", {**body, **diff}).status_code == 201
    events = [
        {
            "event": event,
            "session_id": f"s{number}",
            "commit": K if number % 2 else A,
            "occurred_at": (START + timedelta(minutes=number, seconds=after)).isoformat(),
        }
        for number in range(120)
        for event, after in (("page_view", 0), ("order", 30))
        if event == "page_view" or number % 3 == 0
    ]
    # An audit reads those of production alone.
    events.append({**events[0], "environment": "staging"})
    answer = stored.post("/v1/events?replay=true", {"events": events})
    assert answer.json()["accepted"] == len(events)
    asked = {"treatment_commit": K, "target_metric": "order"}
    registered = stored.post("/v1/reward/register", asked)
    with stored.store.engine.connect() as connection:
        as_of = closed_instant(connection)
    with stored.store.engine.begin() as connection:
        extend_exposures(connection, as_of=as_of)
        extend_cells(connection)
        drafted = draft_evidence(connection, as_of=as_of)
        stage_evidence(connection, [one.draft for one in drafted])
        publish_verdicts(connection)
    return registered.json()["experiment_id"]


def test_an_untouched_verdict_is_equal(command: Callable[..., Any], experiment: str) -> None:
    result = command("audit", experiment)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{experiment}, as of ")
    assert result.stdout.endswith("from 160 raw events: equal to the byte.\n")
    told = json.loads(command("audit", experiment, "--json").stdout)
    assert told["equal"]
    assert (told["events"], told["gone"], told["differences"]) == (160, [], [])


@contextmanager
def tampering(stored: Any) -> Generator[Connection]:
    """Opens a transaction in which decided verdicts are not guarded."""
    with stored.store.engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        yield connection


def test_evidence_that_another_release_worded_is_equal_where_its_facts_are(
    command: Callable[..., Any], stored: Any, experiment: str
) -> None:
    changed = (
        "UPDATE verdicts SET evidence = CAST(evidence::jsonb || CAST(:members AS jsonb) AS json)"
    )
    other_words = {"sentence": "As an older release said it.", "advice": []}
    with tampering(stored) as connection:
        connection.execute(
            text("UPDATE verdicts SET evidence = (evidence::jsonb - 'effect')::json")
        )
        connection.execute(text(changed), {"members": json.dumps(other_words)})
    result = command("audit", experiment)
    assert result.exit_code == 0
    assert result.stdout.endswith(
        ": equal. Another release published its evidence, and worded it otherwise.\n"
    )
    assert json.loads(command("audit", experiment, "--json").stdout)["reworded"]
    with tampering(stored) as connection:
        connection.execute(text(changed), {"members": '{"totals": {"S": 1}}'})
    result = command("audit", experiment)
    assert result.exit_code == 1
    assert "evidence.totals.S: served 1, raw " in result.stdout


def test_a_tampered_cell_is_named(
    command: Callable[..., Any], stored: Any, experiment: str
) -> None:
    with stored.store.engine.begin() as connection:
        connection.execute(
            text("UPDATE cells SET x0 = 0 WHERE metric = 'order' AND block = :at"), {"at": START}
        )
    result = command("audit", experiment)
    assert result.exit_code == 1
    assert "different.\n  cell order 2026-10-01T00:00:00+00:00 " in result.stdout
    told = json.loads(command("audit", experiment, "--json").stdout)
    assert not told["equal"]
    assert len(told["differences"]) == 1


def test_of_many_differences_the_first_are_shown_and_the_others_counted(
    command: Callable[..., Any], stored: Any, experiment: str
) -> None:
    with stored.store.engine.begin() as connection:
        connection.execute(text("DELETE FROM exposures"))
    result = command("audit", experiment)
    assert result.exit_code == 1
    assert result.stdout.count("exposure s") == 20
    assert result.stdout.endswith(" more\n")


def test_of_rows_that_are_compared_in_parts_each_difference_is_named_once(
    command: Callable[..., Any], stored: Any, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stored.store.engine.begin() as connection:
        for change in (
            "DELETE FROM exposures WHERE unit IN ('s5', 's17')",
            "UPDATE exposures SET exposed_at = exposed_at + interval '1 s' WHERE unit = 's8'",
            "DELETE FROM conversions WHERE unit = 's6'",
            "UPDATE cells SET x0 = 0 WHERE metric = 'order'",
        ):
            connection.execute(text(change))
    whole = json.loads(command("audit", experiment, "--json").stdout)
    assert [sum("exposure" in line for line in whole["differences"])] == [3]

    monkeypatch.setattr(differing_rows, "PART_ROWS", 9)
    assert json.loads(command("audit", experiment, "--json").stdout) == whole


def test_raw_events_that_are_gone_have_an_exit_code_of_their_own(
    command: Callable[..., Any], stored: Any, experiment: str
) -> None:
    with stored.store.engine.begin() as connection:
        connection.execute(text("DROP TABLE runtime_events_20261001"))
    result = command("audit", experiment)
    assert result.exit_code == 3
    assert "raw events are gone: runtime_events_20261001" in result.stdout
    assert json.loads(command("audit", experiment, "--json").stdout)["gone"]


@pytest.mark.usefixtures("stored")
def test_an_unknown_experiment_is_a_mistake_of_usage(command: Callable[..., Any]) -> None:
    result = command("audit", "exp_nobody")
    assert result.exit_code == 2
    assert "there is no experiment exp_nobody" in result.stderr


def test_a_policy_that_this_release_cannot_read_is_explained_in_one_sentence(
    command: Callable[..., Any], stored: Any, experiment: str
) -> None:
    with stored.store.engine.begin() as connection:
        connection.execute(text("UPDATE experiments SET policy = policy - 'grace_seconds'"))
    result = command("audit", experiment)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == (
        f"Error: {experiment} was registered by another release, whose policy this one cannot"
        " read: run the release that registered it;"
        f" `deploy-reward close {experiment}` ends it without a verdict.\n"
    )


def test_a_limit_of_memory_that_is_too_small_is_named_with_its_setting(
    command: Callable[..., Any], experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_ENGINE_MEMORY_MIB", "1")
    result = command("audit", experiment)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith("Error: DuckDB needs more than 1 MiB of memory")
    assert result.stderr.endswith(
        ": raise SERVICE_ENGINE_MEMORY_MIB, or set TMPDIR to a larger disk.\n"
    )
