"""The set-up of a project: what tells whether it is wired right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.checklist.admissions import Admissions
from domain.checklist.own_splits import OwnSplits
from domain.evidence.counts import LeftOut
from domain.lineage.control_state import ControlState
from domain.lineage.returning import ReturningVisitors
from domain.metric import FrozenMetric
from domain.registration import ReceivedEvents


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A commit or a route, how many events name it, and whether it is known."""

    value: str
    events: int
    known: bool
    is_ambiguous: bool


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The newest five minutes of events of a project in an environment.

    Attributes:
        page_views: Whether the counts below are of page views, else of every event: an outcome
            need not carry the members of an exposure.
        named: How many of all events, page views or not, name a user.
        of_all: How many events there were, page views or not.
        skewed: Of all, dated more than their grace before their receipt, or 5 seconds after it.
        skew_seconds: By how much, in the mean; negative ahead of us.
    """

    newest_at: datetime
    page_views: bool
    events: int
    committed: int
    routed: int
    named: int
    of_all: int
    skewed: int
    skew_seconds: float
    commits: Sequence[Seen]
    routes: Sequence[Seen]


@dataclass(frozen=True, kw_only=True)
class CrowdedUnit:
    """A session or user that more than a visitor must be: it has a large share of each build.

    Attributes:
        kind: `session`, or `user`.
        unit: Its id; of a user the pseudonym.
    """

    kind: str
    unit: str
    events: int
    of: int


@dataclass(frozen=True, kw_only=True)
class UnmatchedFilter:
    """A filter of a metric that none of its recent events matches."""

    metric: str
    property: str
    events: int
    carrying: int
    usual: str | None


@dataclass(frozen=True, kw_only=True)
class OpenExperiment:
    """An open experiment, as far as it tells how its project is wired.

    Attributes:
        treatment: The commit under test; None before the binding, if it was not named.
        never_received: The target and the guardrails that a keep waits for, of whose events none
            ever came.
        first_look_at: When the target can be looked at first; None once that time came.
        newest_block: The newest block with units of either arm.
        newest_shared_block: The newest block with units of both.
        treated: Units of treatment in the day up to the newest block.
        units: Of both arms, in all; None where hardly any crossed.
    """

    experiment_id: str
    environment: str
    treatment: str | None
    bound: bool
    elsewhere: Sequence[str]
    unshared: bool
    metric: str
    sources: Sequence[str]
    never_received: Sequence[str]
    first_look_at: datetime | None
    converted: bool
    closed_blocks: int
    newest_block: datetime | None
    newest_shared_block: datetime | None
    treated: int
    controlled: int
    crossed: int
    units: int | None
    target: FrozenMetric | None
    left_out: Sequence[LeftOut]
    control_state: ControlState


@dataclass(frozen=True, kw_only=True)
class ProjectSetup:
    """The facts by which the checklist judges a project.

    Attributes:
        target: The default metric and the events that it counts, which matter while no
            experiment is open.
        names: Of events that ever came, the newest first.
        undivided: Its ratios whose `per` events never came, each with the names of these events.
        admissions: Recent refused requests; None where nothing was sent.
        newest_event_at: When the last event came where it measures, if ever; to an hour where that
            was long ago.
        history_to: Of a project that has history alone: up to when, or None without units.
        unit: Which unit experiments count; `auto` where the router decides.
        splits: The results of the last night's splits of its own traffic; None before the first.
        unsealed: Why the log cannot be written to files; None while it can.
        ticked_at: When a tick or a run of the pipeline last ended well; None before the first.
    """

    grace_seconds: float
    contrast_hours: float
    target: tuple[str, Sequence[str]]
    graph: bool
    deployed: bool
    environments: Sequence[str]
    traffic: Mapping[str, Traffic]
    names: Sequence[str]
    received: Sequence[ReceivedEvents]
    unmatched: Sequence[UnmatchedFilter]
    crowded: Sequence[CrowdedUnit]
    undivided: Sequence[tuple[str, Sequence[str]]]
    experiments: Sequence[OpenExperiment]
    rivals: Sequence[tuple[str, str]]
    admissions: Admissions | None
    newest_event_at: datetime | None
    has_history: bool
    history_to: datetime | None
    has_revenue: bool
    revenue_tested: int
    revenue_joined: int
    unit: str
    returning: ReturningVisitors
    set_aside: Sequence[tuple[str, str]]
    unsealed: str | None
    splits: OwnSplits | None
    now: datetime
    created_at: datetime
    ticked_at: datetime | None
