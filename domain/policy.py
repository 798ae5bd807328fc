"""The policy: everything that a verdict reads except events and deploys, frozen with the start."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta, structs

from domain.document import Document
from domain.lineage.flag import Flag
from domain.metric import DAY, Companion, FrozenMetric, picked_cells

Seconds = Annotated[int, Meta(ge=0)]
Precision = Annotated[float, Meta(gt=0)]
Evidence = Annotated[float, Meta(gt=1)]
RoutesBecause = Literal["named", "affected", "all"]
Suspicion = Literal["pause", "roll_back"]
KeepWhen = Literal["alone", "stands"]
Member = Literal["start", "unit", "cap", "thresholds", "history", "routes"]

BLOCK_SECONDS = 300
BLOCK_MIN_UNITS = 50
UNDECLARED_MIN_UNITS = 20
# The evidence of dependence from which on another flag splits the strata (docs/statistics.md,
# 'Many flags in a build').
SPLIT_AT = 2.0
# Standard deviations of the log-odds lift of a change around 0, each with its weight: a fleet of
# which some changes do nothing, most do little, and a few do much.
EFFECT_PRIOR = (
    (0.0, 0.25),
    (0.005, 0.05),
    (0.01, 0.10),
    (0.02, 0.20),
    (0.05, 0.20),
    (0.10, 0.12),
    (0.20, 0.06),
    (0.50, 0.02),
)


class UnreadablePolicyError(ValueError):
    """A stored policy lacks a member, or has a member of another type or range."""


class FrozenSource(Document, frozen=True, kw_only=True):
    """The past that a member of the policy was read from."""

    member: Member
    metric: str | None = None
    vouched: Annotated[
        int,
        Meta(
            description="Events, values, first values, users or sessions of the write key, or"
            " signed by the router."
        ),
    ]
    unvouched: Annotated[
        int,
        Meta(
            description="Those that came with the public key, counted where vouched ones were too"
            " few: anybody can send these."
        ),
    ]
    since: datetime
    until: datetime


# Largest average share of false keeps among those that stand.
FALSE_DISCOVERY_RATE = 0.1
RECORD_DAYS = 30


class KeepRecord(Document, frozen=True, kw_only=True):
    """The changes that a project judged in the 30 days before a day, and kept as they stood."""

    day: Annotated[date, Meta(description="The first looks of this day read it, in UTC.")]
    judged: int
    kept: Annotated[int, Meta(description="Keeps that stood, of experiments that had to.")]

    @property
    def begins_at(self) -> int:
        """The begin of its day, in epoch seconds."""
        return int(datetime.combine(self.day, time(), UTC).timestamp())

    @property
    def needed(self) -> float:
        """The e-value that a further keep stands with, 10·n/max(k, 1); infinite before any n."""
        if not self.judged:
            return math.inf
        return self.judged / FALSE_DISCOVERY_RATE / max(self.kept, 1)


class FrozenAnswer(Document, frozen=True, kw_only=True):
    """The answer of a reading of the past, as JSON in whole numbers, and the days of its events."""

    question: str
    answer: object
    read_from: FrozenSource | None = None
    is_default: bool = False
    since: datetime | None = None
    until: datetime | None = None


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a policy that the test depends on.

    Attributes:
        attempt: 1 for the first experiment of a project on this change and metric, 2 for the next.
        rho_day: Mixture precision of the day cadence, 1 / (relative lift to close)².
        window_seconds: Attribution window of the target metric, a whole multiple of a block.
        block_min_units: Units at which an analysis block ends while treatment's share is declared.
        undeclared_min_units: The same where it is not declared.
        futility_margin: The lift, relative to control's rate, inside which a change makes no
            difference; None where that ends nothing.
        split_at: The evidence that the arms carry the values of another flag unequally from which
            on the strata are split by it.
        fading_at: The evidence that the effect differs between the halves of the experiment from
            which on the verdict carries a warning.
        effect_prior: Standard deviations of the log-odds lift around 0, each with its weight.
        after_window_at: The evidence that outcomes come after the window more often in an arm
            from which on that arm's lower rate is no answer.
        keep_when: Whether a keep has to stand beside the project's other changes.
        patience_seconds: How long a candidate waits until it stands.
    """

    alpha: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    attempt: Annotated[int, Meta(ge=1)] = 1
    rho_day: Precision = 25.0
    rho_fast: Precision = 4.0
    rho_between: tuple[Precision, ...] = ()
    better: Literal["higher", "lower"] = "higher"
    window_seconds: Seconds = 1800
    grace_seconds: Seconds = 120
    block_seconds: Annotated[int, Meta(ge=1)] = BLOCK_SECONDS
    block_min_units: Annotated[int, Meta(ge=1)] = BLOCK_MIN_UNITS
    undeclared_min_units: Annotated[int, Meta(ge=1)] = UNDECLARED_MIN_UNITS
    horizon_seconds: Annotated[int, Meta(ge=1)] = 28 * DAY
    contrast_seconds: Annotated[int, Meta(ge=1)] = DAY
    vif_limit: Annotated[float, Meta(ge=1)] = 10.0
    futility_margin: Annotated[float, Meta(gt=0)] | None = None
    guardrail_alpha: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    value_per_conversion: float | None = None
    sample_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0
    split_at: Evidence = SPLIT_AT
    fading_at: Evidence = 100.0
    after_window_at: Evidence = 100.0
    effect_prior: tuple[tuple[float, float], ...] = EFFECT_PRIOR
    reward_seconds: Seconds = 7 * DAY
    keep_when: KeepWhen = "alone"
    patience_seconds: Seconds = 7 * DAY

    @property
    def level(self) -> float:
        """The level that this attempt tests at, α/j²: registering again is no lucky draw."""
        return self.alpha / self.attempt**2

    @property
    def closes_after(self) -> int:
        """How long after its end a block of the target closes, in seconds."""
        return self.window_seconds + self.grace_seconds

    @property
    def rho(self) -> tuple[float, ...]:
        """The precisions of the mixture's components: day, fast, and those between."""
        return (self.rho_day, self.rho_fast, *self.rho_between)

    @property
    def log_threshold(self) -> float:
        """The logarithm of 1/level: where the e-process crosses."""
        return -math.log(self.level)


# Members that policies got after the first of them were frozen: a policy that lacks it is read
# with the default at its declaration, which never changes. No other default is ever read.
LATER = ("learned_on", "learned_prior")


class Policy(Numbers, frozen=True, kw_only=True):
    """Everything that a verdict reads except events and deploys.

    Attributes:
        routes: Patterns that expose a unit; None for all.
        drawn: Whether the published draw gives the arms of its flag.
        unwatched: Guardrails without a threshold that could be frozen, each in a sentence.
        unread: Members at their default, since their past could not be read in time.
        frozen_from: The answers of its readings, by which it can be frozen again.
        retrospective: Whether events that count came by import or replay.
    """

    version: Literal[1] = 1
    target: FrozenMetric
    guardrails: tuple[FrozenMetric, ...]
    companions: tuple[Companion, ...]
    unwatched: tuple[str, ...]
    read_from: tuple[FrozenSource, ...]
    unread: tuple[str, ...]
    frozen_from: tuple[FrozenAnswer, ...]
    environment: str
    routes: tuple[str, ...] | None
    routes_because: RoutesBecause
    graph_id: str | None
    flag: Flag | None
    unit: str
    drawn: bool
    trusted_identity: bool
    signed_assignments: bool
    on_suspicion: Suspicion
    earlier_attempts: tuple[str, ...]
    warmup_seconds: Seconds
    segments: tuple[str, ...]
    portfolio: bool
    retrospective: bool
    learned_on: str | None = None
    learned_prior: tuple[tuple[float, float], ...] = ()

    @classmethod
    def completed(cls, stored: Mapping[str, object]) -> Mapping[str, object]:
        """Returns a stored policy with the members of `LATER`, where it was written without."""
        later = {each.name: each.default for each in structs.fields(cls) if each.name in LATER}
        return {**later, **stored}

    @classmethod
    def of(cls, stored: Mapping[str, object]) -> Self:
        """Returns a policy as it leaves the store.

        Raises:
            UnreadablePolicyError: It is of another version, or broken; the message names a member.
        """
        written = cls.completed(stored)
        if lacking := [name for name in cls.__struct_fields__ if name not in written]:
            raise UnreadablePolicyError(f"the policy lacks {lacking[0]}")
        try:
            return msgspec.convert(written, cls)
        except msgspec.ValidationError as error:
            raise UnreadablePolicyError(f"the policy cannot be read: {error}") from error

    @property
    def judged(self) -> tuple[FrozenMetric, ...]:
        """The target and the guardrails."""
        return (self.target, *self.guardrails)

    @property
    def metrics(self) -> tuple[FrozenMetric, ...]:
        """All of its metrics: the target, the guardrails, and the target's companions."""
        return (*self.judged, *self.companions)

    @property
    def cell_names(self) -> list[str]:
        """The names of its cells: of its metrics, and of the guardrails' picks."""
        families = dict.fromkeys(each.family for each in self.guardrails if each.picked)
        picked = [name for family in families for name in picked_cells(family)]
        return [*(metric.name for metric in self.metrics), *picked]

    @property
    def numbers(self) -> Self:
        """The same, its window longer by as much as the target's own grace exceeds the policy's.

        History holds alone, since no record was made of its days.
        """
        open_for = self.target.seconds_open(grace=self.grace_seconds)
        alone: dict[str, KeepWhen] = {"keep_when": "alone"} if self.retrospective else {}
        return structs.replace(self, window_seconds=open_for, **alone)

    def first_look_at(self, units_from: datetime) -> datetime:
        """Returns when the block of a moment closes for the target: no look at it comes before."""
        begins_at = int(units_from.timestamp()) // self.block_seconds * self.block_seconds
        closes_at = begins_at + self.block_seconds + self.numbers.closes_after
        return datetime.fromtimestamp(closes_at, tz=UTC)

    def reward_at(self, starts_at: datetime) -> datetime:
        """Returns when the effect is final, unless the deciding look comes later."""
        return starts_at + timedelta(seconds=self.reward_seconds)
