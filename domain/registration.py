"""A registration: a request to measure a change on a target metric, and the answer to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from domain.document import Document, Moment
from domain.lineage.control_state import BaseMove
from domain.lineage.flag import Flag
from domain.lineage.serving import MissingControl
from domain.words import Action, State

# The environment that a registration means where it names no deploy.
PRODUCTION = "production"
# Until the target can be looked at, a guardrail alone can say something: an hour is soon enough to
# ask again, where asking each minute would be 20,160 times for a metric of fourteen days.
GUARDRAIL_PACE_SECONDS = 3600
# The member of the metadata that makes an experiment a portfolio, where it is true.
PORTFOLIO = "portfolio"

# Members of a registration that are stored as requested, beside its commit and metric.
_STORED = (
    *("control_commit", "treatment_flag", "routes", "guardrails", "value_per_conversion"),
    *("metadata", "actor"),
)


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A registration as requested, its form checked; absent members take their defaults."""

    deploy_id: str | None = None
    treatment_commit: str | None = None
    target_metric: str | None = None
    value_per_conversion: float | None = None
    control_commit: str | None = None
    treatment_flag: Flag | None = None
    routes: Sequence[str] | None = None
    guardrails: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None
    # Who, or which agent, asks.
    actor: str | None = None
    # The environment whose deploys are meant where no commit is named.
    environment: str = PRODUCTION
    # Guardrails without an event in an import: only an import may leave them out.
    unseen_guardrails: Sequence[str] = ()

    @classmethod
    def of_stored(cls, members: Mapping[str, object]) -> Self:
        """Returns the registration of stored members."""
        return msgspec.convert(members, cls)

    @property
    def stored(self) -> dict[str, object]:
        """Its members that are stored, absent ones left out."""
        named = {name: getattr(self, name) for name in _STORED}
        return msgspec.to_builtins(
            {name: value for name, value in named.items() if value is not None}
        )

    @property
    def is_portfolio(self) -> bool:
        """Whether it compares the standing build with a hold-back."""
        return self.metadata is not None and self.metadata.get(PORTFOLIO) is True


class RegisteredExperiment(Document, frozen=True, kw_only=True):
    """The answer to a registration."""

    experiment_id: Annotated[str, Meta(description="By which its verdict is asked for.")]


class MissingDeploy(Document, frozen=True, kw_only=True):
    """The deploy that an experiment waits for."""

    commit: Annotated[
        str | None, Meta(description="The commit it must be of; null for the next deploy.")
    ]
    elsewhere: Annotated[
        tuple[str, ...], Meta(description="Environments in which that commit is deployed.")
    ]
    nearest: Annotated[
        str | None,
        Meta(
            description="A deployed commit that `commit` looks like, where a typing error is"
            " likely."
        ),
    ]
    unshared: Annotated[
        bool, Meta(description="Whether it is deployed here, and never had a share of the traffic.")
    ]


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """The traffic of an experiment that has no complete unit yet.

    Attributes:
        without_user: Sessions that name a build but no user, where users are the units.
    """

    units: int
    events: bool
    without_user: int = 0


class Situation(Document, frozen=True, kw_only=True):
    """The state of an experiment, and what to do about it."""

    state: Annotated[State, Meta(description="By what is served, its evidence and its verdict.")]
    action: Annotated[Action, Meta(description="The next step, in a word for programs.")]
    headline: Annotated[str, Meta(description="As pages and lists show it.")] = ""
    advice: Annotated[
        tuple[str, ...], Meta(description="What to do now, the most important first.")
    ]
    sentence: Annotated[
        str | None, Meta(description="The state in words; absent where the evidence says it.")
    ] = None
    until: Annotated[
        Moment | None, Meta(description="When a state without comparison ends the experiment.")
    ] = None
    silent_since: Annotated[
        Moment | None, Meta(description="Since when nothing was counted, where that is for long.")
    ] = None


class ReceivedEvents(Document, frozen=True, kw_only=True):
    """The live events of a name, and how often they come."""

    event: str
    per_hour: Annotated[float, Meta(description="In the mean since yesterday, or since the first.")]


class ListedExperiment(Document, frozen=True, kw_only=True):
    """An experiment as lists name it."""

    experiment_id: str
    registered_at: Moment
    environment: str
    metric: str
    treatment_commit: str | None
    deploy_id: str | None


class RegistrationAnswer(ListedExperiment, frozen=True, kw_only=True):
    """An experiment as it was registered and bound, with its needs before it can answer."""

    control_commit: str | None
    change: Annotated[
        tuple[str, ...] | None, Meta(description="The changes under test; null before its deploy.")
    ]
    joint_with: Annotated[
        tuple[str, ...],
        Meta(
            description="Those that are not the treatment's own: what is measured is the effect of"
            " all of them together."
        ),
    ]
    attempt: int
    fires_at: Annotated[
        float | None,
        Meta(description="The e-value at which its test fires, 1 / level; null before the deploy."),
    ] = None
    frozen_at: Annotated[
        Moment | None,
        Meta(
            description="When the pipeline froze its policy, from the log as of its binding; null"
            " before."
        ),
    ]
    starts_at: Annotated[
        Moment | None, Meta(description="When its exposure begins; null until it is frozen.")
    ]
    declared_at: Annotated[
        Moment | None,
        Meta(description="When its canary began, where it counts from a late registration alone."),
    ]
    waits_for_deploy: MissingDeploy | None
    base_moved: Annotated[
        BaseMove | None,
        Meta(description="Null while a build is served that the treatment can be compared with."),
    ]
    nothing_to_compare: Annotated[
        MissingControl | None,
        Meta(
            description="Null once a unit was compared, or while a build without the change is"
            " served beside the treatment."
        ),
    ]
    first_look_at: Annotated[
        Moment | None,
        Meta(description="When the target can be looked at first; null until it is frozen."),
    ]
    reward_at: Annotated[
        Moment | None,
        Meta(
            description="When its effect is final, unless it is decided later; null until it is"
            " frozen."
        ),
    ]
    never_received: Annotated[
        tuple[str, ...],
        Meta(
            description="The target and the guardrails that a keep waits for, of whose events none"
            " ever came."
        ),
    ] = ()
    received: Annotated[
        tuple[ReceivedEvents, ...],
        Meta(description="The project's live events, the most frequent first; at most 20 names."),
    ] = ()
    retrospective: Annotated[
        bool,
        Meta(description="As its evidence says it: of history, so nothing is to be trained on it."),
    ] = False
    situation: Situation
