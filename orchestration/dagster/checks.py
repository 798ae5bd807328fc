"""The checks: facts about published verdicts and tables, each named for its statement.

None blocks: each looks at what is published already. What must not be published at all is refused
by the database and by the contract itself.
"""

from collections.abc import Sequence, Sized
from typing import Any, TypeGuard

import dagster as dg
from sqlalchemy import Row

from orchestration.dagster.keys import EVIDENCE, RUNTIME_EVENTS, SESSION_CELLS, VERDICTS
from orchestration.dagster.links import experiment_link
from orchestration.dagster.partitions import newest, run_days
from orchestration.dagster.resources import Engine, Store
from orchestration.dagster.table import Rows, markdown, plain
from orchestration.pipeline.day_check import compare_days
from orchestration.pipeline.regression import MOST_CELLS, read_inflations
from storage.schema.clock import closed_instant
from storage.upkeep.gauges import note_self_check
from storage.upkeep.invariants import (
    decided_unlike_their_evidence,
    keeps_with_a_breach,
    lost_sessions,
    risen_running_p,
    units_that_do_not_add_up,
)
from storage.verdicts.backlog import settled_days
from storage.verdicts.set_aside import read_set_aside
from storage.views.published import open_evidence_by_turns
from storage.views.sources import lags_of_measured_projects

# So many rows begin a search, and a check's record is kept for ever.
_SHOWN = 20
# A regression takes a tenth of a second, and the import of statsmodels some seconds.
_REGRESSED = 20


def _holds_for_all(contradicting: Sequence[str]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=not contradicting,
        metadata={
            "contradicting": len(contradicting),
            **_filled(first=contradicting[:_SHOWN], pages=_pages(contradicting)),
        },
    )


def _filled(**entries: Sized) -> dict[str, Any]:
    """Returns the entries that hold anything: a check's page hides each behind a click."""
    return {
        name: markdown(entry) if _is_table(entry) else entry
        for name, entry in entries.items()
        if len(entry)
    }


def _is_table(entry: Sized) -> TypeGuard[Rows]:
    return isinstance(entry, list) and isinstance(entry[0], dict)


def _pages(contradicting: Sequence[str]) -> Rows:
    return [{"experiment": experiment_link(experiment_id)} for experiment_id in contradicting]


@dg.asset_check(
    asset=VERDICTS,
    description="Nothing is told to be kept while one of its guardrails stands breached.\n\n"
    "Looks at every published verdict. **When it fails**, somebody acts on a `keep` that should be"
    " an `iterate`: tell them first, then look at the experiments named.",
)
def no_keep_with_a_breach(store: Store) -> dg.AssetCheckResult:
    """Looks at every published verdict."""
    with store.reading() as connection:
        return _holds_for_all(keeps_with_a_breach(connection))


@dg.asset_check(
    asset=VERDICTS,
    description="A decided verdict is, byte for byte, the one that was computed, and its numbers"
    " are those of the evidence published with it.\n\n"
    "Looks at verdicts decided within a day; the database refuses to rewrite older ones."
    " **When it fails**, something wrote to the table past the service: keep a dump before"
    " anything else.",
)
def decided_verdicts_are_unchanged(store: Store) -> dg.AssetCheckResult:
    """Looks at verdicts decided within a day; the database refuses to rewrite older ones."""
    with store.reading() as connection:
        return _holds_for_all(decided_unlike_their_evidence(connection))


@dg.asset_check(
    asset=EVIDENCE,
    additional_deps=[VERDICTS],
    description="From look to look the running minimum of p never rises.\n\n"
    "Looks at the published evidence of what is open or was decided within a day. **When it"
    " fails**, cells that were final have changed: see `rebuild_equals_increment`.",
)
def running_p_never_rose(store: Store) -> dg.AssetCheckResult:
    """Looks at the published evidence of open and fresh experiments."""
    with store.reading() as connection:
        return _holds_for_all(risen_running_p(connection))


@dg.asset_check(
    asset=EVIDENCE,
    additional_deps=[VERDICTS],
    description="The variance inflation factor that the evidence states is that of a weighted"
    " regression of treatment on the experiment's cells, by `statsmodels`.\n\n"
    f"Looks at {_REGRESSED} open experiments in each run, others in each hour; one with more than"
    f" {MOST_CELLS} cells is counted and left out. **When it fails**, the gate that abstains where"
    " treatment cannot be separated from other changes reads a wrong number: `freeze`, and report"
    " it.",
)
def vif_equals_that_of_a_regression(store: Store) -> dg.AssetCheckResult:
    """Regresses treatment on the cells of some open experiments."""
    with store.reading() as connection:
        evidence = open_evidence_by_turns(connection, limit=_REGRESSED)
        inflations = read_inflations(connection, evidence)
    unequal = [
        {
            "experiment": experiment_link(inflation.experiment_id),
            "evidence": f"{inflation.stated:.9g}",
            "regression": f"{inflation.regressed:.9g}",
        }
        for inflation in inflations
        if not inflation.is_equal
    ]
    return dg.AssetCheckResult(
        passed=not unequal,
        metadata={
            "experiments": len(inflations),
            "too_many_cells": sum(inflation.regressed is None for inflation in inflations),
            **_filled(unequal=unequal),
        },
    )


@dg.asset_check(
    asset=EVIDENCE,
    additional_deps=[VERDICTS],
    description="Every open experiment can be computed from its own data.\n\n"
    "Where one cannot, it is set aside, its last verdict stays, and every other experiment goes on."
    " **When it fails**, the experiments are named below with the error and its place in the code:"
    " update the service, forget what broke it, or `deploy-reward close` it.",
)
def no_experiment_is_set_aside(store: Store) -> dg.AssetCheckResult:
    """Names the experiments whose own data breaks a stage of the pipeline."""
    with store.reading() as connection:
        failures = read_set_aside(connection)
    experiments = [
        {
            "experiment": experiment_link(failure.experiment_id),
            "stage": failure.stage,
            "error": plain(failure.error),
            "since, UTC": f"{failure.first_failed_at:%d %b %H:%M}",
        }
        for failure in failures[:_SHOWN]
    ]
    return dg.AssetCheckResult(
        passed=not failures,
        metadata={"set_aside": len(failures), **_filled(experiments=experiments)},
    )


@dg.asset_check(
    asset=EVIDENCE,
    additional_deps=[VERDICTS],
    description="Every unit with a qualifying event is in a cell, open, late, in flight, of an"
    " unknown commit, unsigned, partial or excluded, and in one of these only; no unit of the last"
    " hour is in none.\n\n"
    "Counts units in the evidence against units seen, and the last hour of the log, route patterns"
    " resolved, against both. **When it fails**, verdicts rest on part of the traffic: `freeze`"
    " before anybody acts on one.",
)
def every_received_unit_is_accounted(store: Store) -> dg.AssetCheckResult:
    """Counts units in the evidence against units seen, and units in the log against both."""
    with store.reading() as connection:
        uneven = units_that_do_not_add_up(connection)
        lost = lost_sessions(connection)
    columns = ["experiment_id", "in_arms", "in_cells", "accounted", "units"]
    return dg.AssetCheckResult(
        passed=not uneven and not lost,
        metadata={
            "uneven_experiments": len(uneven),
            "lost_units": sum(lost.values()),
            **_filled(
                uneven=[{name: str(getattr(row, name)) for name in columns} for row in uneven],
                lost_sessions=dict(list(lost.items())[:_SHOWN]),
            ),
        },
    )


@dg.asset_check(
    asset=SESSION_CELLS,
    additional_deps=[VERDICTS],
    description="The run's days, computed anew from the log in one go, have the same exposures,"
    " sightings, outcomes and cells as those built block by block, row for row; and the verdicts"
    " and evidence that follow from the served cells are, byte for byte, those served.\n\n"
    "Computes beside the store, so that no reader or writer notices: all experiments that read the"
    " days and are decided by now, and of the open ones as many as half a minute of CPU computes,"
    " others on each day; those that were decided on the days from their first block on. Of a run"
    " without a partition the newest day that has settled. **When it fails**, the log or what was"
    " derived from it has changed since: the rows that differ are below, `served` and `raw`;"
    " `audit` compares one experiment's whole life. Experiments that cannot be computed, for want"
    " of memory for one, are named as `not_computed`. Those that were over when they were first"
    " read are left out: no day of theirs was added to another.",
)
def rebuild_equals_increment(
    context: dg.AssetCheckExecutionContext, store: Store, engine: Engine
) -> dg.AssetCheckResult:
    """Computes beside the store, so that no reader or writer notices."""
    with store.reading() as connection:
        as_of = closed_instant(connection)
        days = run_days(context.run.tags) or newest(settled_days(connection, as_of=as_of))
    if days is None:
        return dg.AssetCheckResult(passed=True, metadata={"experiments": 0})
    with store.separate_reading() as separate:
        comparison = compare_days(
            separate, days.first, days.last, as_of=as_of, settings=engine.settings
        )
    with store.reading() as connection:
        note_self_check(connection, first=days.first, last=days.last, equal=comparison.equal)
    return dg.AssetCheckResult(
        passed=comparison.equal and not comparison.not_computed,
        metadata={
            "first_day": days.first.isoformat(),
            "last_day": days.last.isoformat(),
            "experiments": comparison.experiments,
            "left_for_another_day": comparison.left,
            "different_rows": sum(count.total for count in comparison.counts),
            **_filled(
                without_their_events=list(comparison.gone[:_SHOWN]),
                not_computed=list(comparison.not_computed[:_SHOWN]),
                differing=[count.sentence for count in comparison.counts[:_SHOWN]],
                first_rows=[
                    f"{row.experiment_id} {row.sentence}" for row in comparison.rows[:_SHOWN]
                ],
                different_verdicts=list(comparison.verdicts[:_SHOWN]),
                pages=_pages(comparison.verdicts),
            ),
        },
    )


@dg.asset_check(
    asset=RUNTIME_EVENTS,
    description="Where an experiment is open, 99 of 100 events of the last hour were received"
    " within the grace after they occurred; what comes later counts as late.\n\n"
    "Warns only: how late events come is the clients' doing. **When it warns**, look at the"
    " project's senders, or give it a longer `grace_seconds`.",
)
def source_lag_is_under_the_grace(store: Store) -> dg.AssetCheckResult:
    """Warns only: how late events come is the clients' doing."""
    with store.reading() as connection:
        rows = lags_of_measured_projects(connection)
    return dg.AssetCheckResult(
        passed=all(row.lag_seconds <= row.grace_seconds for row in rows),
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "lag_seconds": max((row.lag_seconds for row in rows), default=0.0),
            "events_in_last_hour": sum(row.events for row in rows),
            **_filled(projects=_lags(rows)),
        },
    )


def _lags(rows: Sequence[Row[Any]]) -> Rows:
    return [
        {
            "project": plain(row.project),
            "environment": plain(row.environment),
            "grace, s": f"{row.grace_seconds:g}",
            "lag of 99 %, s": f"{row.lag_seconds:.1f}",
            "events": f"{row.events:,}",
        }
        for row in rows
    ]


FACTS = (
    no_keep_with_a_breach,
    decided_verdicts_are_unchanged,
    running_p_never_rose,
    vif_equals_that_of_a_regression,
    no_experiment_is_set_aside,
    every_received_unit_is_accounted,
    rebuild_equals_increment,
    source_lag_is_under_the_grace,
)
