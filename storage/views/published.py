"""Published verdicts and evidence: by id, the latest, those close to a verdict or set aside."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
from sqlalchemy import Connection, Text, TextClause, cast, select, text

from domain.contract import Contract, contract_of
from domain.evidence.document import Evidence, evidence_of, looked_at
from domain.evidence.effect import Effect
from storage.experiments.deploys import TITLE
from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of
from storage.schema.tables import experiments, verdicts
from storage.upkeep.raw_events import unknown_to_the_store
from storage.verdicts.publication import PublishedVerdict
from storage.verdicts.situations import read_situations


@dataclass(frozen=True, kw_only=True)
class PublishedEvidence:
    """An experiment's published evidence document and contract."""

    experiment_id: str
    title: str | None = None
    document: Evidence
    contract: Contract


_NAMED = f"""LEFT JOIN LATERAL (
    SELECT {TITLE} AS title FROM experiments AS x JOIN deploys AS d USING (deploy_id)
    WHERE x.experiment_id = v.experiment_id
) AS named ON true"""
_NEAREST = text(f"""
SELECT e.experiment_id, e.document::text AS document, e.contract::text AS contract, title
FROM evidence AS e JOIN verdicts AS v USING (experiment_id) {_NAMED}
WHERE NOT v.decided AND e.as_of IS NOT NULL
ORDER BY (e.document #>> '{{totals,e_value}}')::float
    * (e.document #>> '{{policy,level}}')::float DESC, e.experiment_id
LIMIT :limit
""")
_DECIDED_LATELY = text(f"""
SELECT experiment_id, evidence::text AS document, contract::text AS contract, title
FROM verdicts AS v {_NAMED}
WHERE decided AND as_of IS NOT NULL
ORDER BY published_at DESC, experiment_id
LIMIT :limit
""")


def nearest_to_an_answer(connection: Connection, *, limit: int) -> list[PublishedEvidence]:
    """Returns the open experiments whose evidence came nearest to firing, the nearest first."""
    return _as_of_now(connection, _published(connection, _NEAREST, limit))


def decided_lately(connection: Connection, *, limit: int) -> list[PublishedEvidence]:
    """Returns the experiments that were decided last, the last first."""
    return _as_of_now(connection, _published(connection, _DECIDED_LATELY, limit))


_OPEN = text("""
SELECT v.experiment_id, v.evidence::text AS document, v.contract::text AS contract, NULL AS title
FROM verdicts AS v
WHERE NOT v.decided AND json_typeof(v.evidence #> '{gates,vif}') <> 'null'
  AND NOT EXISTS (SELECT FROM set_aside AS s WHERE s.experiment_id = v.experiment_id)
  AND v.experiment_id > :after
ORDER BY v.experiment_id LIMIT :limit
""")


def open_evidence(
    connection: Connection, *, limit: int = 50
) -> Iterator[Sequence[PublishedEvidence]]:
    """Yields the served evidence of all open experiments with a look, some at a time."""
    after = ""
    while part := _published(connection, _OPEN, limit, after=after):
        yield part
        after = part[-1].experiment_id


def _as_of_now(
    connection: Connection, experiments: Sequence[PublishedEvidence]
) -> list[PublishedEvidence]:
    """Returns evidence with the words of the present situation."""
    read = {each.experiment_id: (each.contract, each.document) for each in experiments}
    current = read_situations(connection, read)
    return [
        replace(each, document=known)
        for each in experiments
        if isinstance(known := current[each.experiment_id].evidence, Evidence)
    ]


def _published(
    connection: Connection, query: TextClause, limit: int, **bound: str
) -> list[PublishedEvidence]:
    return [
        PublishedEvidence(
            experiment_id=row.experiment_id,
            title=row.title,
            document=evidence,
            contract=contract_of(row.contract),
        )
        for row in connection.execute(query, {"limit": limit, **bound})
        if (evidence := looked_at(evidence_of(row.document))) is not None
    ]


def read_verdict(connection: Connection, project_id: int, experiment_id: str) -> PublishedVerdict:
    """Returns the verdict of an experiment, never computed here.

    Raises:
        Missing: The project has no such experiment.
    """
    row = connection.execute(
        select(
            cast(verdicts.c.contract, Text).label("contract"),
            verdicts.c.decided,
            verdicts.c.next_look_at,
            verdicts.c.published_at,
        ).where(verdicts.c.experiment_id == experiment_id, verdicts.c.project_id == project_id)
    ).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    return value_of(PublishedVerdict, row, experiment_id=experiment_id)


_EFFECT = text("""
SELECT coalesce(f.effect, v.evidence -> 'effect')::text AS effect
FROM verdicts AS v LEFT JOIN follow_ups AS f USING (experiment_id)
WHERE v.experiment_id = :experiment_id AND v.project_id = :project_id
""")


def read_effect(connection: Connection, project_id: int, experiment_id: str) -> Effect | None:
    """Returns the effect beside the verdict, None before the first look.

    Raises:
        Missing: The project has no such experiment.
    """
    bound = {"experiment_id": experiment_id, "project_id": project_id}
    row = connection.execute(_EFFECT, bound).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    return effect_of(row.effect)


_EFFECTS = msgspec.json.Decoder(Effect | None)


def effect_of(text: str | None) -> Effect | None:
    """Returns the effect of its JSON text, null where the look has none."""
    return None if text is None else _EFFECTS.decode(text)


def project_of(connection: Connection, experiment_id: str) -> int:
    """Returns the project of an experiment, for operators of the service.

    Raises:
        Missing: There is no such experiment.
    """
    project_id = connection.execute(
        select(verdicts.c.project_id).where(verdicts.c.experiment_id == experiment_id)
    ).scalar_one_or_none()
    if project_id is None:
        raise unknown_to_the_store(experiment_id)
    return project_id


def all_contracts(connection: Connection, project_id: int | None = None) -> list[str]:
    """Returns each experiment's contract, as served, oldest first; of a project or of all."""
    query = (
        select(cast(verdicts.c.contract, Text))
        .join_from(verdicts, experiments)
        .order_by(experiments.c.registered_at, experiments.c.experiment_id)
    )
    if project_id is not None:
        query = query.where(verdicts.c.project_id == project_id)
    return list(connection.execute(query).scalars())


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """An experiment that a stage cannot compute; `stage` is the first of `STAGES` that breaks."""

    experiment_id: str
    project_id: int
    stage: str
    error: str
    first_failed_at: datetime
    last_tried_at: datetime

    @property
    def sentence(self) -> str:
        """The sentence for a person, without the experiment's name."""
        word = {"experiments": "policy", "verdicts": "verdict"}.get(self.stage, self.stage)
        return (
            f"The {word} of this experiment cannot be computed since"
            f" {self.first_failed_at:%d %b %H:%M} UTC ({self.error}). Its last published verdict"
            " stays; all other experiments go on. It is tried again at least each hour."
        )


_SET_ASIDE = text("""
SELECT s.experiment_id, x.project_id, s.stage, s.error, s.first_failed_at, s.last_tried_at
FROM set_aside AS s JOIN experiments AS x USING (experiment_id)
WHERE x.project_id = coalesce(:project_id, x.project_id)
ORDER BY s.first_failed_at, s.experiment_id
""")


def read_set_aside(connection: Connection, *, project_id: int | None = None) -> Sequence[SetAside]:
    """Returns a project's set-aside experiments, without a project all, the oldest first."""
    rows = connection.execute(_SET_ASIDE, {"project_id": project_id})
    return [value_of(SetAside, row) for row in rows]
