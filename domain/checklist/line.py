"""A line of a checklist, as the API serves it."""

from typing import Annotated

from msgspec import Meta

from domain.document import Document


class ChecklistLine(Document, frozen=True, kw_only=True):
    """A line of a checklist."""

    check: Annotated[str, Meta(description="The name of the check, in a few stable words.")]
    ok: Annotated[
        bool | None,
        Meta(description="Whether it is as it should be; null where that is not known yet."),
    ]
    seen: Annotated[str, Meta(description="The observation, in figures.")]
    fix: Annotated[str, Meta(description="The very next thing to do; empty where all is well.")]
    experiment_id: Annotated[
        str | None, Meta(description="Of an experiment's fault: its id; absent of all others.")
    ] = None
