"""The list of a project's experiments: each with its verdict, a page at a time."""

from typing import Annotated

from msgspec import Meta

from domain.contract import Contract
from domain.document import Document, Moment
from domain.registration import ListedExperiment


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
    allocation: Annotated[
        float | None,
        Meta(description="The share of units that the newest deploy of the commit declares."),
    ]
    superseded_by: Annotated[
        str | None,
        Meta(
            description="Of a declared canary: the newest commit that came after it. Whoever"
            " promotes the canary takes that commit from users."
        ),
    ]
    contract: Contract


class VerdictList(Document, frozen=True, kw_only=True):
    """A page of a project's experiments."""

    experiments: tuple[ListedVerdict, ...]
    next_cursor: str | None
