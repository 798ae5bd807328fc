"""The assets: the steps from the log to a verdict, each a transaction of its own."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import dagster as dg

from orchestration.dagster.cells import session_cells
from orchestration.dagster.keys import (
    DEPLOYS,
    EVIDENCE,
    EXPERIMENTS,
    EXPOSURES,
    FRESHNESS,
    OWNERS,
    PREFIX,
    REVENUE_EVENTS,
    RUNTIME_EVENTS,
    SEALED_LOG,
    SESSION_CELLS,
    STATIC_GRAPHS,
    TAGS,
    VERDICTS,
    table_metadata,
)
from orchestration.dagster.partitions import asked_to_close, patience
from orchestration.dagster.resources import Answers, Engine, Store

# This tag of a run names the experiments whose answers it changed.
TURNED_TAG = f"{PREFIX}/turned"
_MOST_TAGGED = 10
# A run that was requested before its block closed starts at most a minute early.
_LONGEST_WAIT = 60.0


def _await_closing(context: dg.AssetExecutionContext, store: Store) -> None:
    """Waits for the instant at which the run's blocks close, by the store's clock."""
    from storage.schema.clock import seconds_until

    if (closes_at := asked_to_close(context.run.tags)) is None:
        return
    with store.reading() as connection:
        seconds = seconds_until(connection, closes_at)
    time.sleep(min(max(seconds, 0.0), _LONGEST_WAIT))


def _step(
    key: dg.AssetKey, *, deps: Sequence[dg.AssetKey], group: str, kinds: set[str]
) -> Callable[[Callable[..., dg.MaterializeResult[Any]]], dg.AssetsDefinition]:
    """Returns the decorator that makes an asset of a step."""
    with warnings.catch_warnings():
        # A command that names a range of days wants a single run of the steps without days as well.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.asset(
            key=key,
            deps=deps,
            backfill_policy=dg.BackfillPolicy.single_run(),
            group_name=f"{PREFIX}_{group}",
            owners=OWNERS,
            tags=TAGS,
            kinds=kinds,
            metadata=table_metadata(key),
            freshness_policy=FRESHNESS,
        )


@_step(
    EXPERIMENTS,
    deps=[RUNTIME_EVENTS, REVENUE_EVENTS, DEPLOYS, STATIC_GRAPHS],
    group="units",
    kinds={"python", "postgres"},
)
def experiments(
    context: dg.AssetExecutionContext,
    store: Store,
    engine: dg.ResourceParam[Engine],
    answers: dg.ResourceParam[Answers],
) -> dg.MaterializeResult[Any]:
    """Each registered change with its start and its frozen policy: the experiments.

    A registration binds its deploy, settings and earlier attempts at once; unit, caps, thresholds,
    history and routes are read here, from the log as of that time.

    - **Final** once frozen. A target whose threshold cannot be frozen ends without a verdict.
    - **Backfill**: none. Whenever a run freezes, it reads the log as of the registration.
    - **Served** at `GET /v1/reward/{experiment_id}/registration`, and with the evidence.
    """
    from orchestration.pipeline.steps import BEFORE_LOOKS, freeze_bound, note_seen

    _await_closing(context, store)
    begun = time.monotonic()
    with store.step("experiments") as connection:
        as_of = note_seen(connection)
    given = patience(context.run.tags)
    counts = freeze_bound(
        store.reading, engine.days, as_of=as_of, patience=given, seconds=BEFORE_LOOKS
    )
    context.log.info("experiments: %s frozen, %s wait", counts.frozen, counts.waiting)
    with store.reading() as connection:
        frozen = answers.frozen(connection)
    return dg.MaterializeResult(
        metadata={
            "frozen_now": counts.frozen,
            "waiting": counts.waiting,
            **frozen,
            "seconds": _since(begun),
        }
    )


@_step(
    EXPOSURES,
    deps=[EXPERIMENTS, RUNTIME_EVENTS, SEALED_LOG, DEPLOYS, STATIC_GRAPHS],
    group="units",
    kinds={"python", "postgres"},
)
def exposures(
    context: dg.AssetExecutionContext, store: Store, engine: dg.ResourceParam[Engine]
) -> dg.MaterializeResult[Any]:
    """Who saw what: each unit's first qualifying event, its arm and its stratum.

    - **Final** once the event's block of 5 minutes has closed, the grace after it included: what
      is received later can neither make nor move an exposure.
    - **Backfill**: none is needed. Any run reads on from where the last run ended, however long
      ago.
    - **Served** as counts in `GET /v1/reward/{experiment_id}/evidence`.
    """
    from orchestration.pipeline.steps import expose
    from storage.views.counts import open_units

    begun = time.monotonic()
    with store.step("exposures") as connection:
        exposed = expose(connection, engine.days, patience=patience(context.run.tags))
        units = open_units(connection)
    context.log.info("exposures: %s added, read to %s", exposed.added, exposed.as_of)
    lag = (exposed.as_of - (units.read_to or exposed.as_of)).total_seconds()
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": units.units,
            "added": exposed.added,
            "experiments": units.experiments,
            "read_to": dg.MetadataValue.timestamp(exposed.as_of),
            # It is that of the experiment that was read least.
            "lag_seconds": lag,
            "seconds": _since(begun),
        }
    )


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)


@_step(
    EVIDENCE,
    deps=[SESSION_CELLS, EXPOSURES, DEPLOYS],
    group="answers",
    kinds={"python", "postgres"},
)
def evidence(
    context: dg.AssetExecutionContext, store: Store, answers: dg.ResourceParam[Answers]
) -> dg.MaterializeResult[Any]:
    """What can be said: the always-valid test of every open experiment, look by look.

    Computed from closed cells alone and staged: no reader sees it before `verdicts` publishes it.

    - **Final** when its experiment is decided.
    - **Backfill**: none. A run of the fast schedule computes the experiments that may have a new
      look; any other run computes all open ones.
    - **Served** at `GET /v1/reward/{experiment_id}/evidence`, to the byte.
    - **Below**, by the change's title, are the open experiments nearest to an answer: the band is
      the interval of treatment minus control, the straight line no difference; VIF is the price of
      the strata, and above 10 the change is aliased with another.
    """
    from orchestration.pipeline.batch import FAST
    from orchestration.pipeline.steps import stage, stage_due

    begun = time.monotonic()
    given = patience(context.run.tags)
    with store.step("evidence") as connection:
        work = stage_due if given is FAST else stage
        drafted = work(connection, patience=given)
    seconds = _since(begun)
    context.log.info("evidence: %s experiments computed in %s s", len(drafted), seconds)
    # This is read after the step, outside its lock: experiments without a new look are shown too.
    with store.reading() as connection:
        nearest = answers.nearest(connection)
    return dg.MaterializeResult(
        metadata={
            **nearest,
            "computed_now": len(drafted),
            "decided_now": sum(verdict.contract.decided for verdict in drafted),
            "seconds": seconds,
            "published_by": dg.MetadataValue.asset(VERDICTS),
        }
    )


@_step(VERDICTS, deps=[EVIDENCE], group="answers", kinds={"postgres"})
def verdicts(
    context: dg.AssetExecutionContext,
    store: Store,
    engine: dg.ResourceParam[Engine],
    answers: dg.ResourceParam[Answers],
) -> dg.MaterializeResult[Any]:
    """The answers that are served: keep, roll back, iterate, or cannot say yet.

    Published with their evidence in a single transaction, so that a reader gets a whole old or a
    whole new one.

    - **Final** once decided: the database itself refuses to rewrite it.
    - **Cadence** names the part of the test that answers, for lifts that show in hours or in days;
      the fast schedule publishes both, and the schedule of the day checks what they rest on.
    - **Backfill**: none. A verdict is a function of the log alone, whenever it is computed.
    - **Served** at `GET /v1/reward/{experiment_id}`, from this row.
    - **Below**, by the change's title, are those that were decided last, then how many there are.
      The run's tag names those that it changed.
    """
    from orchestration.pipeline.steps import freeze_bound, note_seen, publish
    from storage.views.counts import count_answers

    begun, given = time.monotonic(), patience(context.run.tags)
    with store.step("verdicts") as connection:
        published = publish(connection, patience=given)
        counts = count_answers(connection)
        decided_last = answers.decided(connection)
        as_of = note_seen(connection)
    answers.advance_places(store.reading)
    # What takes long to be frozen goes on after the looks.
    freeze_bound(store.reading, engine.days, as_of=as_of, patience=given)
    context.log.info("verdicts: %s published, %s decided in all", len(published), counts.decided)
    changed = sorted(verdict.experiment_id for verdict in published if verdict.changed)
    _tag(context, changed)
    return dg.MaterializeResult(
        metadata={
            **decided_last,
            "changed": len(changed),
            "published_now": len(published),
            **asdict(counts),
            "seconds": _since(begun),
            "open_experiments": dg.MetadataValue.asset(EVIDENCE),
        }
    )


def _tag(context: dg.AssetExecutionContext, experiments: Sequence[str]) -> None:
    """Names the experiments that turned on the run, which the list of runs shows and filters by."""
    if not experiments:
        return
    more = len(experiments) - _MOST_TAGGED
    named = [*experiments[:_MOST_TAGGED], *([f"and {more} more"] if more > 0 else [])]
    context.instance.add_run_tags(context.run.run_id, {TURNED_TAG: ", ".join(named)})


STEPS = (experiments, exposures, session_cells, evidence, verdicts)
