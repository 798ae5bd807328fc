"""Experiments as the pipeline reads them: the frozen policy in the units of its text."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, ClassVar

from sqlalchemy import Connection, Row, text

from domain.cause import Cause
from domain.draw import bound_of
from domain.metric import PICKED, POSITIONS, Companion, FrozenMetric, picked_cells
from domain.millionths import MILLION, cap_in_millionths
from domain.policy import Policy
from storage.pipeline.assignments import Question
from storage.pipeline.moments import SECOND, block_of, microseconds
from storage.pipeline.steps import AHEAD, HALF, KINDS, PROPERTIES, REASONS, asked_values
from storage.postgres.rows import value_of
from storage.schema.policy_columns import SEEN_FROM


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of an experiment; the members of `COLUMNS` are columns of the text's `metrics`.

    Attributes:
        attribution_window: How long after a unit's exposure they count, in microseconds.
        open_for: How long after a block's exposures its outcomes close, in microseconds: the
            window, and by how much the metric's own grace exceeds the policy's.
        kind: Its place in `KINDS`.
        cap: Of a mean, in millionths.
        threshold: A unit counts whose first value exceeds it, in millionths; None where each event
            counts.
        amounts_of: Under which name its values are kept: a guardrail's thresholds share them.
        factors: Of each other currency that a mean converts, `conversion_factor`.
        vouched_only: 1 where events count alone that came with the write key, or signed; 2 with
            the write key.
        by_page: 1 where events count alone that came with the public key, and not signed.
        left_out: Of `REASONS`, why the target leaves the events out that count here; 0 where it
            counts them.
        turnover: 1 where no event counts, but that a session's user began another session.
        history_from: Since when its events were received, where they are a user's history and the
            first reading looks for them; else None.
        property_1: The first property that an event must have to count; None where there is none.
        asked: The values that count of these properties, as `asked_values` writes them.
        threshold_2: Of picks, the second of the thresholds that they are held against.
        position: Of picks, at which position among its unit's events the event stands at least.
        picked_as: The name under which picks of its events are kept; None where none are.
        salt: By which they are picked. Who knows it can choose ids that never are.
    """

    COLUMNS: ClassVar = {
        **dict.fromkeys(("attribution_window", "attribution_before", "open_for"), "bigint"),
        **dict.fromkeys(("cap", "threshold", "history_from", "history_to"), "bigint"),
        **dict.fromkeys(("threshold_2", "threshold_3", "threshold_4", "position"), "bigint"),
        **dict.fromkeys(("kind", "vouched_only", "by_page", "left_out", "turnover"), "int"),
        **dict.fromkeys(("amounts_of", "also_of", "currency", *PROPERTIES, "asked"), "text"),
        **dict.fromkeys(("picked_as", "salt"), "text"),
    }

    name: str
    sources: Sequence[str]
    attribution_window: int
    attribution_before: int
    open_for: int
    kind: int
    per: Sequence[str]
    cap: int | None
    threshold: int | None
    amounts_of: str
    currency: str | None
    factors: Mapping[str, int]
    vouched_only: int
    by_page: int
    left_out: int
    turnover: int
    also_of: str | None
    history_from: int | None
    history_to: int | None
    property_1: str | None = None
    property_2: str | None = None
    property_3: str | None = None
    asked: str
    threshold_2: int | None = None
    threshold_3: int | None = None
    threshold_4: int | None = None
    position: int | None = None
    picked_as: str | None = None
    salt: str | None = field(default=None, repr=False)

    def counted(self, event: str) -> tuple[int | None, int | None]:
        """Returns the columns `adds` and `otherwise` of `sources` for an event."""
        if not self.per:
            return MILLION if self.left_out else None, None
        over = 1 if event in self.per else None
        return (HALF if event in self.sources else 0) + (over or 0), over


@dataclass(frozen=True, kw_only=True)
class PipelineExperiment(Question):
    """A bound experiment, in the order of a batch.

    Attributes:
        seen_from: From when on the log is read: units seen from then on until the start are in
            neither arm.
        grace: How long a block waits for late events, in microseconds.
        target_window: The target's window, in microseconds.
        sample_bound: The first hash outside the sample; None where every unit is in it.
    """

    number: int
    experiment_id: str
    project_id: int
    environment: str
    starts_at: int
    seen_from: int
    graph_id: str | None
    routes: Sequence[str] | None
    by_user: bool
    trusted_only: bool
    signed_only: bool
    vouched_only: bool
    grace: int
    horizon: int
    warm_at: int
    target_window: int
    target_open_for: int
    sample_bound: str | None
    drawn: bool
    metrics: Sequence[Metric]

    @property
    def environment_key(self) -> tuple[int, str]:
        """Its project and environment."""
        return self.project_id, self.environment


_READ = f"""
SELECT x.experiment_id, x.project_id, x.environment, x.change, x.treatment_commit, x.bound_at,
    x.starts_at, {SEEN_FROM} AS seen_from, x.policy,
    (SELECT pick_secret FROM installation) AS pick_secret
"""
_EXPERIMENTS = text(f"""
{_READ}
FROM experiments AS x LEFT JOIN verdicts AS v USING (experiment_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
WHERE x.frozen_at IS NOT NULL AND (NOT coalesce(v.decided, false) OR f.state = 'running')
  AND (CAST(:only AS text[]) IS NULL OR x.experiment_id = ANY(CAST(:only AS text[])))
ORDER BY x.experiment_id
""")


def open_experiments(
    connection: Connection, *, only: Sequence[str] | None
) -> list[PipelineExperiment]:
    """Returns the bound experiments that are not decided, and those that are still followed up.

    Args:
        only: Those of them to return; None for all.

    Raises:
        UnreadablePolicyError: A policy is broken.
    """
    rows = connection.execute(_EXPERIMENTS, {"only": None if only is None else list(only)})
    return [experiment_of(row, number) for number, row in enumerate(rows)]


_BOUND = text(f"""
{_READ}
FROM experiments AS x WHERE x.experiment_id = :id AND x.frozen_at IS NOT NULL
""")


def bound_experiment(connection: Connection, experiment_id: str) -> PipelineExperiment:
    """Returns a bound experiment, whether it is decided or not; its number is 0.

    Raises:
        sqlalchemy.exc.NoResultFound: There is none of this name.
        UnreadablePolicyError: Its policy is broken.
    """
    return experiment_of(connection.execute(_BOUND, {"id": experiment_id}).one(), 0)


def experiment_of(row: Row[Any], number: int) -> PipelineExperiment:
    """Returns the experiment of a row of `experiments`."""
    policy, starts_at = Policy.of(row.policy), microseconds(row.starts_at)
    return value_of(
        PipelineExperiment,
        row,
        number=number,
        change=frozenset(row.change),
        starts_at=starts_at,
        seen_from=microseconds(row.seen_from),
        graph_id=policy.graph_id,
        routes=policy.routes,
        flag=policy.flag,
        by_user=policy.unit != "session",
        trusted_only=policy.trusted_identity,
        signed_only=policy.signed_assignments,
        vouched_only=policy.target.vouched_only,
        grace=policy.grace_seconds * SECOND,
        horizon=starts_at + policy.horizon_seconds * SECOND,
        warm_at=starts_at + policy.warmup_seconds * SECOND,
        target_window=policy.window_seconds * SECOND,
        target_open_for=policy.target.seconds_open(grace=policy.grace_seconds) * SECOND,
        segments=policy.segments,
        sample_bound=bound_of(policy.sample_rate),
        drawn=policy.drawn,
        metrics=list(_metrics(policy, row.experiment_id, row.pick_secret)),
    )


def _metrics(policy: Policy, experiment_id: str, secret: str) -> Iterator[Metric]:
    """Yields the metrics of a policy, and those that are counted of picked events."""
    salt = hmac.digest(secret.encode(), experiment_id.encode(), hashlib.sha256).hex()
    for family, each in groupby(policy.metrics, lambda metric: metric.family):
        own = list(each)
        first, *others = (_metric(metric, grace=policy.grace_seconds) for metric in own)
        if not own[0].picked:
            yield from (first, *others)
            continue
        kept_as = f"{family}{PICKED}"
        yield replace(first, picked_as=kept_as, salt=salt)
        yield from others
        over = [metric.threshold for metric in (first, *others)]
        further = dict(zip(("threshold_2", "threshold_3", "threshold_4"), over[1:], strict=False))
        for name, position in zip(picked_cells(family), POSITIONS, strict=True):
            yield replace(
                first,
                name=name,
                amounts_of=kept_as,
                kind=KINDS.index("picked"),
                position=position,
                **further,
            )


def _metric(frozen: FrozenMetric, *, grace: int) -> Metric:
    companion = frozen if isinstance(frozen, Companion) else None
    role = "" if companion is None else companion.role
    where = frozen.where or {}
    received = companion and companion.received
    history_from, history_to = map(microseconds, received) if received else (None, None)
    return Metric(
        name=frozen.name,
        sources=frozen.sources,
        attribution_window=frozen.window_seconds * SECOND,
        # Below 0 where its events begin to count some time after the exposure.
        attribution_before=((companion.before_seconds if companion else 0) - frozen.after_seconds)
        * SECOND,
        open_for=frozen.seconds_open(grace=grace) * SECOND,
        kind=KINDS.index(frozen.kind),
        per=frozen.per or (),
        cap=None if frozen.cap is None else cap_in_millionths(frozen.cap),
        threshold=None if frozen.over is None else cap_in_millionths(frozen.over),
        amounts_of=frozen.family,
        currency=frozen.currency,
        vouched_only=2 if frozen.trusted_only else int(role == "vouched" or frozen.vouched_only),
        by_page=int(role == Cause.CHANNELS),
        factors=frozen.factors,
        left_out=REASONS.get(role, 0),
        turnover=int(role == Cause.TURNOVER),
        also_of=companion and companion.also_of,
        history_from=history_from,
        history_to=history_to,
        **dict(zip(PROPERTIES, where, strict=False)),
        asked=asked_values(where),
    )


# --- How far each is read ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReadExperiment:
    """An experiment and the blocks of exposure that a computation adds."""

    experiment: PipelineExperiment
    from_block: int
    to_block: int

    @property
    def received_from(self) -> int:
        """The earliest time of receipt that is read."""
        return self.from_block - AHEAD

    @property
    def received_to(self) -> int:
        """The latest."""
        return self.to_block + self.experiment.grace


def first_block(experiment: PipelineExperiment) -> int:
    """Returns the first block that is ever read of an experiment."""
    return block_of(experiment.seen_from)


def end_block(experiment: PipelineExperiment) -> int:
    """Returns where reading ends: with the closing of the last outcome within the horizon."""
    return block_of(experiment.horizon + experiment.target_open_for)


def blocks_to_expose(
    experiments: Iterable[PipelineExperiment], *, read_to: Mapping[str, int], as_of: int
) -> list[ReadExperiment]:
    """Returns the experiments of which blocks have closed that were not read yet."""
    unread: list[ReadExperiment] = []
    for experiment in experiments:
        to_block = min(block_of(as_of - experiment.grace), end_block(experiment))
        from_block = read_to.get(experiment.experiment_id, first_block(experiment))
        if to_block > from_block:
            unread.append(
                ReadExperiment(experiment=experiment, from_block=from_block, to_block=to_block)
            )
    return unread


def asks_for_properties(experiments: Iterable[PipelineExperiment]) -> bool:
    """Tells whether a metric of these experiments asks for properties of its events."""
    return any(metric.property_1 for each in experiments for metric in each.metrics)


def segments_of(read: Iterable[ReadExperiment]) -> list[str]:
    """Returns the properties of events that some of these experiments read, in order."""
    return sorted({name for part in read for name in part.experiment.segments})
