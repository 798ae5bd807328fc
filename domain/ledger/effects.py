"""An actor's effects: all of its changes in a single document, so that none is left out unseen."""

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from domain.document import Document, Moment, document_text
from domain.evidence.effect import Effect

MOST_EFFECTS = 2000


class ActorEffect(Document, frozen=True, kw_only=True):
    """An experiment of an actor, and the effect of its change."""

    experiment_id: str
    metric: str
    effect: Annotated[Effect | None, Meta(description="As served; null before the first look.")]


class ActorEffects(Document, frozen=True, kw_only=True):
    """The effects of all changes of an actor, whoever stopped them and when."""

    as_of: Moment
    actor: Annotated[str | None, Meta(description="Null for all actors.")]
    changes: Annotated[int, Meta(description="Experiments that the actor's changes were bound to.")]
    final: Annotated[int, Meta(description="Those listed whose effect can change no more.")]
    averaged: Annotated[int, Meta(description="Those of them whose effect is `learned`.")]
    mean: Annotated[
        float | None,
        Meta(description="The mean of these learned estimates: what a change is worth."),
    ]
    effects: Annotated[tuple[ActorEffect, ...], Meta(description="The newest 2,000, oldest first.")]
    left_out: Annotated[int, Meta(description="Older experiments that are not listed.")]
    digest: Annotated[
        str, Meta(description="SHA-256 of the listed ids and likelihoods, in their order.")
    ]

    @classmethod
    def of(
        cls, effects: Sequence[ActorEffect], *, actor: str | None, changes: int, as_of: datetime
    ) -> "ActorEffects":
        """Returns the document of the experiments to list, the oldest first."""
        served = [listed.effect for listed in effects]
        final = [effect for effect in served if effect is not None and effect.final]
        means = [effect.learned for effect in final if effect.learned is not None]
        content = [
            (listed.experiment_id, listed.effect and listed.effect.likelihood) for listed in effects
        ]
        return cls(
            as_of=as_of,
            actor=actor,
            changes=changes,
            final=len(final),
            averaged=len(means),
            mean=math.fsum(means) / len(means) if means else None,
            effects=tuple(effects),
            left_out=changes - len(effects),
            digest=hashlib.sha256(document_text(content).encode()).hexdigest(),
        )
