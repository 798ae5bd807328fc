"""The list of a project's experiments: each with its verdict, a page at a time."""

from typing import Annotated

from msgspec import Meta

from domain.contract import Contract
from domain.document import Document, Moment
from domain.registration import ListedExperiment
from domain.words import Action


class ListedVerdict(ListedExperiment, frozen=True, kw_only=True):
    """An experiment in the list."""

    control_commit: str | None
    joint_with: Annotated[
        tuple[str, ...],
        Meta(
            description="Changes that the treatment carries beside its own, and the control lacks:"
            " what is measured is the effect of all of them together."
        ),
    ]
    as_of: Moment | None
    decided_at: Annotated[Moment | None, Meta(description="When the verdict became final.")]
    breached_at: Annotated[
        Moment | None, Meta(description="When the first of its breached guardrails was breached.")
    ]
    headline: Annotated[str, Meta(description="As pages show it: its situation now.")]
    action: Annotated[Action, Meta(description="The next step, as in its registration.")]
    by_itself: Annotated[
        bool,
        Meta(
            description="Whether a workflow may take that step: not where it rests on a breach of"
            " events that anybody can send, unless the project's settings allow it; and not of a"
            " flag or of history."
        ),
    ]
    treatment_flag: Annotated[
        str | None, Meta(description="The flag's value under test, `NAME=VALUE`; null of a commit.")
    ]
    allocation: Annotated[
        float | None,
        Meta(description="The share of units that the newest deploy of the commit declares."),
    ]
    superseded_by: Annotated[
        str | None,
        Meta(
            description="Of a canary: the newest commit that came after it. Whoever"
            " promotes the canary takes that commit from users."
        ),
    ]
    contract: Contract


class VerdictList(Document, frozen=True, kw_only=True):
    """A page of a project's experiments."""

    experiments: Annotated[tuple[ListedVerdict, ...], Meta(description="The newest first.")]
    next_cursor: Annotated[
        str | None, Meta(description="Pass this as cursor for the next page; null on the last.")
    ]
