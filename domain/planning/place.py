"""A place: a flag of every build, or a canary's share, that a change has until it is answered."""

from typing import Annotated, Literal

from msgspec import Meta

from domain.document import Document, Moment

PlaceState = Literal["queued", "placed", "ended"]
PlaceKind = Literal["flag", "canary"]
PlaceOutcome = Literal[
    "keep", "rollback", "iterate", "harmless", "suspected", "unanswered", "given_back", "refused"
]
PlaceAction = Literal["wait", "serve", "pause", "promote", "withdraw", "none"]
# Defaults of a request: the harm that it accepts, and how long it waits.
ACCEPT_HARM, PATIENCE_HOURS = 0.2, 24.0


class Place(Document, frozen=True, kw_only=True):
    """A change's place, or its position in the queue."""

    place_id: str
    change: Annotated[str, Meta(description="The change: a pull request, a commit or a flag.")]
    environment: str
    metric: Annotated[str | None, Meta(description="Its target; null for the project's default.")]
    flag: Annotated[str | None, Meta(description="The flag that it is behind.")]
    commit: Annotated[str | None, Meta(description="The commit that brings it.")]
    actor: str | None
    state: PlaceState
    position: Annotated[int | None, Meta(description="In the queue, from 1.")]
    kind: Annotated[PlaceKind | None, Meta(description="What it got; null while queued.")]
    share: Annotated[float | None, Meta(description="Of units, to serve the change to.")]
    expected_hours: Annotated[
        float | None,
        Meta(
            description="Of traffic, until a change that does nothing is shown to lose no more than"
            " accept_harm, in 80 % of runs; null where no rate was measured yet."
        ),
    ]
    accept_harm: float
    patience_hours: float
    experiment_id: Annotated[
        str | None, Meta(description="Of a canary null until its deploy is posted.")
    ]
    asked_at: Moment
    placed_at: Moment | None
    ended_at: Moment | None
    outcome: Annotated[
        PlaceOutcome | None,
        Meta(
            description="The verdict; harmless: a loss beyond accept_harm is excluded; suspected:"
            " worse, unless units are lost, where `on_suspicion` goes back; unanswered: it ended"
            " without an answer, or patience did; given_back: by hand; refused: no experiment can"
            " be made of it."
        ),
    ]
    action: Annotated[
        PlaceAction,
        Meta(description="What to do now; wait: ask again later; pause: raise no share."),
    ]
    sentence: Annotated[str, Meta(description="The same for people.")]


class PlaceList(Document, frozen=True, kw_only=True):
    """Places, the last changed first."""

    places: tuple[Place, ...]
