"""The effects of an actor's changes, as they are served, and those that a prior is learned from."""

from datetime import datetime

from msgspec import UNSET, structs
from sqlalchemy import Connection, text

from domain.ledger.effects import MOST_EFFECTS, ActorEffect, ActorEffects
from storage.ledger.entries import ACTOR
from storage.schema.policy_columns import IS_PORTFOLIO
from storage.verdicts.publication import effect_of

_EFFECTS = text(f"""
SELECT x.experiment_id, x.target_metric, count(*) OVER () AS changes,
    CASE WHEN v.as_of IS NOT NULL
        THEN coalesce(f.effect, v.evidence -> 'effect')::text END AS effect
FROM experiments AS x
LEFT JOIN deploys AS d USING (deploy_id)
LEFT JOIN verdicts AS v USING (experiment_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
WHERE x.project_id = :project_id AND x.bound_at IS NOT NULL
  AND (CAST(:actor AS text) IS NULL OR {ACTOR} = :actor)
  -- Its changes are listed by themselves.
  AND NOT {IS_PORTFOLIO}
ORDER BY x.bound_at DESC, x.experiment_id
LIMIT {MOST_EFFECTS}
""")


def read_actor_effects(
    connection: Connection, project_id: int, actor: str | None, *, as_of: datetime
) -> ActorEffects:
    """Returns the effects of all changes of an actor, none of an unknown actor; None: of all."""
    rows = connection.execute(_EFFECTS, {"project_id": project_id, "actor": actor}).all()
    listed: list[ActorEffect] = []
    for row in reversed(rows):
        effect = effect_of(row.effect)
        if effect is not None:
            effect = structs.replace(effect, after_decision=UNSET)
        listed.append(
            ActorEffect(experiment_id=row.experiment_id, metric=row.target_metric, effect=effect)
        )
    changes = rows[0].changes if rows else 0
    return ActorEffects.of(listed, actor=actor, changes=changes, as_of=as_of)
