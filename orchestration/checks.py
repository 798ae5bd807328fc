"""The checks: facts about what is served, each named for what it states."""

from collections.abc import Sequence

import dagster as dg
import pandas as pd

from orchestration.keys import EVIDENCE, RUNTIME_EVENTS, SESSION_CELLS, VERDICTS
from orchestration.partitions import newest, run_days
from orchestration.rebuild import compare_days
from orchestration.resources import Store
from orchestration.table import markdown
from storage.clock import closed_instant
from storage.observations import (
    decided_unlike_their_evidence,
    keeps_with_a_breach,
    lags_of_measured_projects,
    lost_sessions,
    risen_running_p,
    settled_days,
    units_that_do_not_add_up,
)

# Enough to begin a search with; a check's record is kept for ever.
_SHOWN = 20


def _holds_for_all(contradicting: Sequence[str]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=not contradicting,
        metadata={"contradicting": len(contradicting), "first": list(contradicting[:_SHOWN])},
    )


@dg.asset_check(
    asset=VERDICTS,
    description="Nothing is told to be kept while one of its guardrails stands breached.",
)
def no_keep_with_a_breach(store: Store) -> dg.AssetCheckResult:
    """Looks at every published verdict."""
    with store.reading() as connection:
        return _holds_for_all(keeps_with_a_breach(connection))


@dg.asset_check(
    asset=VERDICTS,
    description="A decided verdict is, byte for byte, the one that was computed, and its numbers"
    " are those of the evidence published with it.",
)
def decided_verdicts_are_unchanged(store: Store) -> dg.AssetCheckResult:
    """Looks at what was decided within a day; the database refuses to rewrite what is older."""
    with store.reading() as connection:
        return _holds_for_all(decided_unlike_their_evidence(connection))


@dg.asset_check(
    asset=EVIDENCE,
    additional_deps=[VERDICTS],
    description="From look to look the running minimum of p never rises.",
)
def running_p_never_rose(store: Store) -> dg.AssetCheckResult:
    """Looks at the published evidence of what is open or fresh."""
    with store.reading() as connection:
        return _holds_for_all(risen_running_p(connection))


@dg.asset_check(
    asset=EVIDENCE,
    additional_deps=[VERDICTS],
    description="Every unit with a qualifying event is in a cell, open, late, in flight, of an"
    " unknown commit, partial or excluded, and in one of these only; no session of the last hour"
    " is in none.",
)
def every_received_unit_is_accounted(store: Store) -> dg.AssetCheckResult:
    """Counts units in the evidence against units seen, and sessions in the log against both."""
    with store.reading() as connection:
        uneven = units_that_do_not_add_up(connection)
        lost = lost_sessions(connection)
    columns = ["experiment_id", "in_arms", "in_cells", "accounted", "units"]
    return dg.AssetCheckResult(
        passed=not uneven and not lost,
        metadata={
            "uneven_experiments": len(uneven),
            "uneven": markdown(pd.DataFrame(uneven, columns=columns)),
            "lost_sessions": lost,
        },
    )


@dg.asset_check(
    asset=SESSION_CELLS,
    additional_deps=[VERDICTS],
    description="The experiments that counted units on the run's days, computed anew from the log"
    " in one go, have the same cells, verdicts and evidence as those built block by block.",
)
def rebuild_equals_increment(
    context: dg.AssetCheckExecutionContext, store: Store
) -> dg.AssetCheckResult:
    """Rebuilds in temporary tables, so that no reader or writer notices."""
    with store.reading() as connection:
        as_of = closed_instant(connection)
        days = run_days(context.run.tags) or newest(settled_days(connection, as_of=as_of))
    if days is None:
        return dg.AssetCheckResult(passed=True, metadata={"experiments": 0})
    with store.separate_reading() as separate:
        found = compare_days(separate, days.first, days.last, as_of=as_of)
    return dg.AssetCheckResult(
        passed=found.equal,
        metadata={
            "first_day": days.first.isoformat(),
            "last_day": days.last.isoformat(),
            "experiments": found.experiments,
            "different_cells": len(found.cells),
            "cells": found.cells[:_SHOWN],
            "different_verdicts": found.verdicts[:_SHOWN],
        },
    )


@dg.asset_check(
    asset=RUNTIME_EVENTS,
    description="Where an experiment is open, 99 of 100 events of the last hour were received"
    " within the grace after they occurred; what comes later counts as late.",
)
def source_lag_is_under_the_grace(store: Store) -> dg.AssetCheckResult:
    """Warns only: how late events come is the clients' doing."""
    with store.reading() as connection:
        rows = lags_of_measured_projects(connection)
    columns = ["project", "environment", "grace_seconds", "events", "lag_seconds"]
    return dg.AssetCheckResult(
        passed=all(row.lag_seconds <= row.grace_seconds for row in rows),
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"projects": markdown(pd.DataFrame(rows, columns=columns))},
    )


FACTS = (
    no_keep_with_a_breach,
    decided_verdicts_are_unchanged,
    running_p_never_rose,
    every_received_unit_is_accounted,
    rebuild_equals_increment,
    source_lag_is_under_the_grace,
)
