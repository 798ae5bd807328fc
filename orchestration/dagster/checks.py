"""The checks: facts about published verdicts and tables, each named for its statement.

None blocks: each looks at published rows. What must not be published at all is refused
by the database and by the contract itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import dagster as dg

from orchestration.dagster.keys import EVIDENCE, RUNTIME_EVENTS, VERDICTS
from orchestration.dagster.resources import Store
from orchestration.dagster.table import MOST_ROWS, Rows, filled, pages, plain
from orchestration.outbound.links import experiment_link

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from storage.views.sources import SourceLateness

_Look = Callable[[Store], dg.AssetCheckResult]


def _fact(
    asset: dg.AssetKey, *deps: dg.AssetKey, statement: str, cure: str
) -> Callable[[_Look], dg.AssetChecksDefinition]:
    """Returns the decorator of a check: a gauge shows its last result, a failure says the cure."""

    def check(look: _Look) -> dg.AssetChecksDefinition:
        @dg.asset_check(
            name=look.__name__,
            asset=asset,
            additional_deps=deps,
            description=f"{statement}\n\n**When it fails.** {cure}",
        )
        def noted(store: Store) -> dg.AssetCheckResult:
            from storage.upkeep.check_results import note_check

            result = look(store)
            with store.reading() as connection:
                note_check(connection, name=look.__name__, passed=result.passed)
            return dg.AssetCheckResult(
                passed=result.passed,
                severity=result.severity,
                metadata=result.metadata,
                description=None if result.passed else cure,
            )

        return noted

    return check


def _holds_for_all(
    store: Store, query: "Callable[[Connection], Sequence[str]]"
) -> dg.AssetCheckResult:
    with store.reading() as connection:
        contradicting = query(connection)
    return dg.AssetCheckResult(
        passed=not contradicting,
        metadata={
            "contradicting": len(contradicting),
            **filled(first=contradicting[:MOST_ROWS], pages=pages(contradicting)),
        },
    )


@_fact(
    VERDICTS,
    statement="Nothing is to be kept while any of its guardrails stands breached. Looks at every"
    " published verdict.",
    cure="Somebody acts on a `keep` that should be an `iterate`, so tell them first. Then"
    " type `deploy-reward freeze --reason breach` and `deploy-reward audit EXPERIMENT`, and"
    " register the change again: a decided verdict is never rewritten.",
)
def no_keep_with_a_breach(store: Store) -> dg.AssetCheckResult:
    """Looks at every published verdict."""
    from storage.upkeep.invariants import keeps_with_a_breach

    return _holds_for_all(store, keeps_with_a_breach)


@_fact(
    VERDICTS,
    statement="A decided verdict is, byte for byte, as it was computed, and its numbers"
    " are those of the evidence published with it. Looks at verdicts decided within a day; the"
    " database refuses to rewrite older ones.",
    cure="Something wrote to the table past the service, so keep a dump before anything"
    " else. Then type `deploy-reward audit EXPERIMENT`, which says what the log gives, and"
    " register the change again.",
)
def decided_verdicts_are_unchanged(store: Store) -> dg.AssetCheckResult:
    """Looks at verdicts decided within a day; the database refuses to rewrite older ones."""
    from storage.upkeep.invariants import decided_unlike_their_evidence

    return _holds_for_all(store, decided_unlike_their_evidence)


@_fact(
    EVIDENCE,
    VERDICTS,
    statement="From look to look the running minimum of p never rises. Looks at the published"
    " evidence of what is open or was decided within a day.",
    cure="Cells that were final have changed. Materialize the days of the experiment in"
    " `session_cells`, or type `deploy-reward rebuild`; then materialize `evidence` and"
    " `verdicts`.",
)
def running_p_never_rose(store: Store) -> dg.AssetCheckResult:
    """Looks at the published evidence of open and fresh experiments."""
    from storage.upkeep.invariants import risen_running_p

    return _holds_for_all(store, risen_running_p)


@_fact(
    EVIDENCE,
    VERDICTS,
    statement="The variance inflation factor that the evidence states is that of a weighted"
    " regression of treatment on the experiment's cells, by `statsmodels`. Looks at every open"
    " experiment.",
    cure="The gate that abstains where treatment cannot be separated from other changes read"
    " other cells. Materialize the days of the experiment in `session_cells`, then `evidence` and"
    " `verdicts`. If it fails again, type `deploy-reward freeze --reason vif`, and report it.",
)
def vif_equals_that_of_a_regression(store: Store) -> dg.AssetCheckResult:
    """Regresses treatment on the cells of every open experiment."""
    from orchestration.pipeline.regression import read_inflations
    from storage.views.published import open_evidence

    with store.reading() as connection:
        inflations = [
            inflation
            for evidence in open_evidence(connection)
            for inflation in read_inflations(connection, evidence)
        ]
    unequal = [
        {
            "experiment": experiment_link(inflation.experiment_id),
            "evidence": f"{inflation.stated:.9g}",
            "regression": f"{inflation.regressed:.9g}",
        }
        for inflation in inflations
        if not inflation.is_equal
    ][:MOST_ROWS]
    return dg.AssetCheckResult(
        passed=not unequal, metadata={"experiments": len(inflations), **filled(unequal=unequal)}
    )


@_fact(
    EVIDENCE,
    VERDICTS,
    statement="Every open experiment can be computed from its own data. Where any cannot, it is"
    " set aside, its last verdict stays, and every other experiment goes on.",
    cure="The experiments are named below with the error and its place in the code. Update"
    " the service, or type `deploy-reward forget` for what broke it, or `deploy-reward close"
    " EXPERIMENT`.",
)
def no_experiment_is_set_aside(store: Store) -> dg.AssetCheckResult:
    """Names the experiments whose own data breaks a stage of the pipeline."""
    from storage.views.published import read_set_aside

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


@_fact(
    EVIDENCE,
    VERDICTS,
    statement="Every unit with a qualifying event is in a cell, open, late, in flight, of an"
    " unknown commit, unsigned, partial or excluded, and in one of these only; no unit of the last"
    " hour is in none. Counts units in the evidence against units seen, and the last hour of the"
    " log, route patterns resolved, against both.",
    cure="Verdicts rest on part of the traffic. Type `deploy-reward freeze --reason units`"
    " before anybody acts on a verdict, then `deploy-reward rebuild`, which counts all anew from"
    " the log.",
)
def every_received_unit_is_accounted(store: Store) -> dg.AssetCheckResult:
    """Counts units in the evidence against units seen, and units in the log against both."""
    from storage.upkeep.invariants import lost_sessions, units_that_do_not_add_up

    with store.reading() as connection:
        uneven = units_that_do_not_add_up(connection)
        lost = lost_sessions(connection)
    return dg.AssetCheckResult(
        passed=not uneven and not lost,
        metadata={
            "uneven_experiments": len(uneven),
            "lost_units": sum(lost.values()),
            **filled(
                uneven=[
                    {name: str(value) for name, value in asdict(each).items()} for each in uneven
                ],
                lost_sessions=dict(list(lost.items())[:MOST_ROWS]),
            ),
        },
    )


@_fact(
    RUNTIME_EVENTS,
    statement="Where an experiment is open, 99 of 100 events of the last hour were received"
    " within the grace after they occurred; what comes later counts as late. Warns only: how late"
    " events come is the clients' doing.",
    cure="Look at the project's senders, or type `deploy-reward settings set"
    " grace_seconds=SECONDS` for its next experiments.",
)
def source_lag_is_under_the_grace(store: Store) -> dg.AssetCheckResult:
    """Warns only: how late events come is the clients' doing."""
    from storage.views.sources import lags_of_measured_projects

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


def _lags(rows: "Sequence[SourceLateness]") -> Rows:
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
