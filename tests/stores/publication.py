"""A publication: an experiment's verdict and its evidence, published as a tick does."""

from datetime import UTC, datetime
from typing import Any

from msgspec import structs
from sqlalchemy import Connection

from domain.contract import contract
from domain.document import document_text
from storage.verdicts.publication import Draft, publish_verdicts, stage_evidence
from tests.stores.example import example_document


def publish(
    connection: Connection,
    experiment_id: str,
    answer: dict[str, Any],
    document: dict[str, Any],
    *,
    next_look_at: datetime | None = None,
    wrong: dict[str, Any] | None = None,
) -> str:
    """Publishes an experiment's contract, with wrong members too, and its evidence document.

    Returns the contract's text.
    """
    members = structs.asdict(contract(experiment_id, **answer)) | (wrong or {})
    draft = Draft(
        experiment_id=experiment_id,
        document=document_text(example_document(**document)),
        contract=document_text(members),
        as_of=datetime.now(UTC),
        next_look_at=next_look_at,
    )
    stage_evidence(connection, [draft])
    publish_verdicts(connection)
    return draft.contract
