"""The state of a control: served still, its place taken by another build, or none at all.

A canary is compared with units of a build that carries all that it carries but its change. Once
another build takes its place, nothing new can be compared until the canary stands on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from domain.document import Document, Moment
from domain.lineage.history import History
from domain.lineage.serving import MissingControl, ReleaseStep, Serving, Standing
from domain.lineage.takeover import Takeover, takeovers
from domain.words import EndedBecause


class BaseMove(Document, frozen=True, kw_only=True):
    """The build that took the place of the control."""

    rebase_on: Annotated[str, Meta(description="The commit that users have now.")]
    changes: Annotated[
        tuple[str, ...], Meta(description="The `changes` to post with the rebased commit.")
    ]
    since: Annotated[
        Moment | None, Meta(description="When it was deployed, where that is recorded.")
    ]
    continues: Annotated[
        bool, Meta(description="Whether the rebased commit counts on here; else register it anew.")
    ]


@dataclass(frozen=True, kw_only=True)
class ControlState:
    """The builds beside the treatment of an open experiment.

    Attributes:
        moved: The build in the place of its control; None while that is served.
        resumed_at: When the treatment got its share again after such a step.
    """

    moved: BaseMove | None = None
    missing: MissingControl | None = None
    ending: Takeover | None = None
    resumed_at: datetime | None = None
    differs: bool = False


def control_state(
    serving: Serving,
    history: History,
    *,
    treatment: str,
    control: str | None,
    change: frozenset[str],
    compared: bool,
    starts_at: datetime | None = None,
) -> ControlState:
    """Returns the state of the builds beside a treatment.

    Args:
        control: The commit it is compared with; None where none was known at its binding.
        starts_at: When its exposure begins; None where that does not matter.
    """
    standing = serving.standing()
    over = takeovers(serving.steps, treatment=treatment, control=control, change=change)
    ending = over[-1][1] if over else None
    resumed_at = _resumed_at(over, starts_at)
    if ending is not None and ending.because is EndedBecause.SUPERSEDED:
        ending = None
    # Most treatments stand on what users have, and then no lineage need be computed.
    if standing and standing.commit == control and history.stands_on(treatment, standing.commit):
        return ControlState(ending=ending, resumed_at=resumed_at, differs=standing.differs)
    missing = None
    # A build that takes the change back stands on it, and is nothing to compare it with; who
    # promotes a canary knows that nothing stands beside it any more.
    was_canary = any(step.is_partial for step in serving.steps if step.commit == treatment)
    if (not compared or serving.is_taken_out(control)) and not (
        ending is not None and (was_canary or ending.because is EndedBecause.WITHDRAWN)
    ):
        missing = serving.missing_control(treatment, control=control, change=change)
    moved = None
    # Users have the change by another commit: there is nothing to put it on anew.
    if ending is None or ending.because is not EndedBecause.PROMOTED:
        moved = _base_move(
            serving, history, standing, treatment=treatment, control=control, change=change
        )
    return ControlState(
        moved=moved,
        missing=missing,
        ending=ending,
        resumed_at=resumed_at,
        differs=standing is not None and standing.differs,
    )


def _resumed_at(
    over: Sequence[tuple[ReleaseStep, Takeover | None]], starts_at: datetime | None
) -> datetime | None:
    """Returns when a canary got its share again that had lost it since its experiment began."""
    resumed_at: datetime | None = None
    is_lost = False
    if starts_at is None:
        return None
    for step, takeover in over:
        if takeover is not None:
            is_lost, resumed_at = step.deployed_at > starts_at, None
        elif is_lost and resumed_at is None:
            resumed_at = step.deployed_at
    return resumed_at


def _base_move(
    serving: Serving,
    history: History,
    standing: Standing | None,
    *,
    treatment: str,
    control: str | None,
    change: frozenset[str],
) -> BaseMove | None:
    if standing is None or change <= history.lineage(standing.commit):
        return None
    # While nothing is seen, users have what was deployed to all of them last.
    bases = [control] if control is not None and serving.parts else []
    # A canary that was deployed a moment ago has no unit yet.
    served = serving.served(named=[treatment, *bases])
    carried = {commit: history.lineage(commit) for commit in {standing.commit, *served}}
    strata = [lineage - change for lineage in carried.values() if change <= lineage]
    controls = [lineage for lineage in carried.values() if not change & lineage]
    if not strata or any(stratum in controls for stratum in strata):
        return None
    return BaseMove(
        rebase_on=standing.commit,
        changes=tuple(sorted(change - carried[standing.commit])),
        since=standing.since,
        continues=not change & carried[standing.commit],
    )
