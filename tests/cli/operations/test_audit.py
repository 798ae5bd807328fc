"""`audit` says equal, different or gone, in words, in JSON and by its exit code."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from storage.pipeline.moments import microseconds
from storage.schema.clock import closed_instant
from storage.tenants.projects import CreatedProject
from tests.conftest import Store, filled_model, fresh_store, serving_store
from tests.stores.past import walk_to
from tests.world import T, World, at

A, K = "aaaaaaa", "bbbbbbb"
METRICS = {"basket": {"kind": "mean", "sources": ["basket"], "cap": 90.0}, "paid": {}}


def audited_shop(store: Store) -> tuple[CreatedProject, str]:
    """A published look at two hours of a canary, a unit a minute: its project and experiment."""
    with serving_store(store) as client:
        world = World.new(store, client)
        world.settings(metrics=METRICS, locked=[])
        world.deploy(A, minutes=-1440)
        world.deploy(K, minutes=0, base=A)
        world.events = [
            {
                "event": event,
                "session_id": f"s{number}",
                "commit": K if number % 2 else A,
                "occurred_at": at(number + after),
                **({"value": 12.5} if event == "basket" else {}),
            }
            for number in range(120)
            for event, after in (("page_view", 0), ("order", 0.5), ("basket", 0.7))
            if event == "page_view" or number % 3 == 0
        ]
        # An audit reads those of production alone.
        world.events.append({**world.events[0], "environment": "staging"})
        world.send()
        experiment_id = world.register(
            treatment_commit=K, target_metric="order", guardrails=["basket", "paid"]
        )
        world.freeze()
        # Block by block, as though it had been there all the time.
        walk_to(store.engine, world.in_store(closed_instant))
    return world.project, experiment_id


# Walked once: each test has a copy of the store.
@pytest.fixture(scope="module")
def _model(postgres_url, migrated_template) -> Iterator[Any]:
    with filled_model(postgres_url, migrated_template, audited_shop) as model:
        yield model


@pytest.fixture
def service(postgres_url, _model) -> Iterator[World]:
    name, (project, _) = _model
    with fresh_store(postgres_url, name) as store, serving_store(store) as client:
        yield World(store=store, client=client, project=project)


@pytest.fixture
def experiment(stored, _model) -> str:
    """The experiment, whose store is named to the commands."""
    assert stored
    return _model[1][1]


def test_an_untouched_verdict_is_equal(command, experiment) -> None:
    result = command("audit", experiment)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{experiment}, as of ")
    assert result.stdout.endswith("from 200 raw events: equal to the byte.\n")
    report = json.loads(command("audit", experiment, "--json").stdout)
    assert report["equal"]
    assert (report["events"], report["gone"], report["differences"]) == (200, [], [])


@contextmanager
def tampering(stored: Any) -> Generator[Connection]:
    """Opens a transaction in which decided verdicts are not guarded."""
    with stored.store.engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        yield connection


# Each changes a row of a stage, which is named by its key, or an event behind a row.
TAMPERINGS: dict[str, dict[str, str]] = {
    "a row of each stage is another": {
        "UPDATE cells_in_words SET x1 = x1 + 1"
        " WHERE metric = 'order' AND block = '{block}'": "cells of 2026",
        "UPDATE exposures SET arm = 1 WHERE unit = 's12'": "exposures of 2026",
        "UPDATE block_units_in_words SET warming = 1 WHERE block = '{block}'": (
            "block_units of 2026"
        ),
        "INSERT INTO sightings (experiment_id, kind, unit, sighted_at)"
        " SELECT experiment_id, 4, 'stranger', "
        " extract(epoch FROM timestamptz '{block}') * 1000000 FROM experiments": (
            "sightings of 2026"
        ),
        "DELETE FROM conversions WHERE metric = 'order' AND unit = 's12'": "conversions of 2026",
        "UPDATE amounts SET value = value + 1 WHERE unit = 's12'": "amounts of 2026",
        "UPDATE verdicts SET evidence = jsonb_set(evidence::jsonb, '{{totals,W}}', '1')::json": (
            "evidence.totals.W: served 1, raw "
        ),
        "UPDATE verdicts SET contract = (contract::text || ' ')::json": "contract, byte ",
    },
    "rows are gone, or came later": {
        "DELETE FROM cells_in_words WHERE metric = 'order' AND block = '{block}'": (
            "cells of 2026"
        ),
        "DELETE FROM exposures WHERE unit = 's12'": "exposures of 2026",
        "UPDATE conversions SET received_at = received_at + 1"
        " WHERE metric = 'order' AND unit = 's12'": "conversions of 2026",
    },
    "an event is gone, a stratum another": {
        "DELETE FROM runtime_events WHERE session_id = 's13'": "exposures of 2026",
        "UPDATE strata SET stratum = 'another'": "strata: ",
    },
    "an event is a microsecond later": {
        "UPDATE runtime_events SET occurred_at = occurred_at + interval '1 microsecond'"
        " WHERE session_id = 's13'": "exposures of 2026"
    },
}


@pytest.mark.parametrize("tampered", TAMPERINGS.values(), ids=TAMPERINGS)
def test_a_tampered_row_of_each_stage_is_named(command, stored, experiment, tampered) -> None:
    block = T + timedelta(minutes=10)
    with tampering(stored) as connection:
        for statement in tampered:
            assert connection.execute(text(statement.format(block=block))).rowcount == 1
    result = command("audit", experiment, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert not report["equal"]
    for named in tampered.values():
        assert any(line.startswith(named) for line in report["differences"]), named


def test_an_experiment_closed_by_hand_is_audited_to_its_closing(
    command, stored, experiment
) -> None:
    assert stored.post(f"/v1/reward/{experiment}/close", {}).status_code == 200
    stored.tick()
    report = json.loads(command("audit", experiment, "--json").stdout)
    assert report["equal"], report["differences"]


def test_an_experiment_before_its_deploy_has_nothing_to_differ_in(command, stored) -> None:
    waiting = stored.register(target_metric="order")
    report = json.loads(command("audit", waiting, "--json").stdout)
    assert (report["equal"], report["as_of"]) == (True, None)


def test_of_many_differences_the_first_are_shown_and_the_others_counted(
    command, stored, experiment
) -> None:
    with stored.store.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO sightings (experiment_id, kind, unit, sighted_at)"
                " SELECT :id, 4, 'stranger ' || n, :at + n * 3600000000"
                " FROM generate_series(1, 35) AS n"
            ),
            {"id": experiment, "at": microseconds(T)},
        )
    result = command("audit", experiment)
    assert result.exit_code == 1
    assert result.stdout.count("sightings of 2026-10-0") == 20
    assert result.stdout.endswith("\n  and 15 more\n")


def test_raw_events_that_are_gone_have_an_exit_code_of_their_own(
    command, stored, experiment
) -> None:
    with stored.store.engine.begin() as connection:
        connection.execute(text("DROP TABLE runtime_events_20261001"))
    result = command("audit", experiment)
    assert result.exit_code == 3
    assert "raw events are gone: runtime_events_20261001" in result.stdout
    assert json.loads(command("audit", experiment, "--json").stdout)["gone"]


def test_a_policy_that_this_release_cannot_read_is_explained_in_one_sentence(
    command, stored, experiment
) -> None:
    with stored.store.engine.begin() as connection:
        connection.execute(text("UPDATE experiments SET policy = policy - 'grace_seconds'"))
    result = command("audit", experiment)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == (
        f"Error: {experiment} was registered by another release, whose policy this release cannot"
        " read: run the release that registered it;"
        f" `deploy-reward close {experiment}` ends it without a verdict.\n"
    )


def test_a_limit_of_memory_that_is_too_small_is_named_with_its_setting(
    command, experiment, monkeypatch
) -> None:
    monkeypatch.setenv("SERVICE_ENGINE_MEMORY_MIB", "1")
    result = command("audit", experiment)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith("Error: DuckDB needs more than 1 MiB of memory")
    assert result.stderr.endswith(
        ": raise SERVICE_ENGINE_MEMORY_MIB, or set TMPDIR to a larger disk.\n"
    )
