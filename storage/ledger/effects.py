"""The effects of an actor's changes, as they are served, and those that a prior is learned from."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET, structs
from sqlalchemy import Connection, text

from domain.document import document_text
from domain.ledger.effects import MOST_EFFECTS, ActorEffect, ActorEffects
from storage.ledger.entries import ACTOR
from storage.schema.policy_columns import IS_PORTFOLIO
from storage.views.published import effect_of

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


# A prior is learned from so many changes; at most a fifth of them are of a single actor, who would
# else teach the service what to say of it.
_TAUGHT_BY = 300
_LIKELIHOODS = text(f"""
WITH decided AS (
    SELECT {ACTOR} AS actor, v.as_of, v.experiment_id,
        coalesce(f.effect, v.evidence -> 'effect') AS effect
    FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    LEFT JOIN deploys AS d USING (deploy_id)
    LEFT JOIN follow_ups AS f USING (experiment_id)
    WHERE v.project_id = :project_id AND v.decided AND v.as_of IS NOT NULL AND NOT {IS_PORTFOLIO}
    ORDER BY v.as_of DESC, v.experiment_id LIMIT {MOST_EFFECTS}
), final AS (
    SELECT as_of, experiment_id, (effect #>> '{{likelihood,estimate}}')::float AS estimate,
        (effect #>> '{{likelihood,standard_error}}')::float AS standard_error,
        row_number() OVER (PARTITION BY actor ORDER BY as_of DESC, experiment_id) AS of_actor
    FROM decided
    -- Of other units than control's level no prior is known.
    WHERE effect #>> '{{likelihood,trainable}}' = 'true' AND effect ->> 'relative' IS NOT NULL
)
SELECT estimate, standard_error FROM final
WHERE of_actor <= {_TAUGHT_BY // 5} ORDER BY as_of DESC, experiment_id LIMIT {_TAUGHT_BY}
""")
_KEEP = text("""
INSERT INTO learned_priors (project_id, day, weights)
VALUES (:project_id, (now() AT TIME ZONE 'UTC')::date, CAST(:weights AS jsonb))
ON CONFLICT DO NOTHING
""")


def final_likelihoods(connection: Connection, project_id: int) -> list[tuple[float, float]]:
    """Returns the newest estimates with their errors to learn from; none where they are too few."""
    rows = connection.execute(_LIKELIHOODS, {"project_id": project_id}).all()
    return [(row.estimate, row.standard_error) for row in rows] if len(rows) == _TAUGHT_BY else []


def keep_prior(
    connection: Connection, project_id: int, weights: Sequence[tuple[float, float]]
) -> None:
    """Keeps the learned prior of today; the first of a day stays."""
    bound = {"project_id": project_id, "weights": document_text(weights)}
    connection.execute(_KEEP, bound)
