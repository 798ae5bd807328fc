"""The checks: facts about published verdicts and tables, each named for its statement.

None blocks: each looks at what is published already. What must not be published at all is refused
by the database and by the contract itself.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from sqlalchemy import Row

from orchestration.dagster.keys import EVIDENCE, RUNTIME_EVENTS, VERDICTS
from orchestration.dagster.links import experiment_link
from orchestration.dagster.resources import Store
from orchestration.dagster.table import MOST_ROWS, Rows, filled, pages, plain
from orchestration.pipeline.regression import MOST_CELLS, read_inflations
from storage.upkeep.invariants import (
    decided_unlike_their_evidence,
    keeps_with_a_breach,
    lost_sessions,
    risen_running_p,
    units_that_do_not_add_up,
)
from storage.verdicts.set_aside import read_set_aside
from storage.views.published import open_evidence_by_turns
from storage.views.sources import lags_of_measured_projects

# A regression takes a tenth of a second, and the import of statsmodels some seconds.
_REGRESSED = 20


def _holds_for_all(contradicting: Sequence[str]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=not contradicting,
        metadata={
            "contradicting": len(contradicting),
            **filled(first=contradicting[:MOST_ROWS], pages=pages(contradicting)),
        },
    )


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
            **filled(unequal=unequal),
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
        for failure in failures[:MOST_ROWS]
    ]
    return dg.AssetCheckResult(
        passed=not failures,
        metadata={"set_aside": len(failures), **filled(experiments=experiments)},
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
            **filled(
                uneven=[{name: str(getattr(row, name)) for name in columns} for row in uneven],
                lost_sessions=dict(list(lost.items())[:MOST_ROWS]),
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
            **filled(projects=_lags(rows)),
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
    source_lag_is_under_the_grace,
)
