"""Announcements: a project's messages on its verdicts, each once ever, kept for delivery."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import insert

from domain.arrival import ARRIVAL, is_steady_shortfall
from storage.schema.tables import deliveries
from storage.tenants.settings import read_settings
from storage.tenants.webhook import Event

_FAULTS = ("non_identifiable", "interacting")

_ANNOUNCE = text("""
-- The key holds that each is announced once; a rebuild that publishes all anew adds nothing.
INSERT INTO announcements (
    announcement_id, project_id, experiment_id, kind, subject,
    announced_at, contract, sentence, environment, metric, commit_sha
)
SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), v.project_id, v.experiment_id,
       news.kind, news.subject, clock_timestamp(), v.contract, v.evidence ->> 'sentence',
       x.environment, x.target_metric, x.treatment_commit
FROM unnest(CAST(:ids AS text[]), CAST(:kinds AS text[]), CAST(:subjects AS text[]))
    AS news (experiment_id, kind, subject)
JOIN verdicts AS v USING (experiment_id)
JOIN experiments AS x USING (experiment_id)
ON CONFLICT (experiment_id, kind, subject) DO NOTHING
RETURNING announcement_id, project_id, kind, announced_at
""")


def announce(connection: Connection, contracts: Sequence[Mapping[str, Any]]) -> int:
    """Announces what these contracts tell that was not announced before.

    Args:
        connection: In the transaction that published the contracts.
        contracts: Those that are told otherwise than before.

    Returns:
        How many announcements that makes; each waits for delivery to the project's webhooks of
        this moment.
    """
    steady = _steady_shortfalls(connection, contracts)
    news = [
        (contract["experiment_id"], kind, subject)
        for contract in contracts
        for kind, subject in _news(contract, steady=contract["experiment_id"] in steady)
    ]
    if not news:
        return 0
    ids, kinds, subjects = (list(column) for column in zip(*news, strict=True))
    announced = connection.execute(
        _ANNOUNCE, {"ids": ids, "kinds": kinds, "subjects": subjects}
    ).all()
    webhooks = {
        project_id: read_settings(connection, project_id).webhooks
        for project_id in {row.project_id for row in announced}
    }
    waiting = [
        {
            "announcement_id": row.announcement_id,
            "target": webhook.target,
            "next_attempt_at": row.announced_at,
        }
        for row in announced
        for webhook in webhooks[row.project_id]
        if row.kind in webhook.events
    ]
    if waiting:
        connection.execute(insert(deliveries).values(waiting))
    return len(announced)


_SHORTFALLS = text("""
SELECT experiment_id, evidence #> '{gates,shortfall}' AS shortfall
FROM verdicts WHERE experiment_id = ANY(:ids)
""")


def _steady_shortfalls(
    connection: Connection, contracts: Sequence[Mapping[str, Any]]
) -> frozenset[str]:
    """Returns the experiments of which nothing but `arrival` is breached, at a steady ratio."""
    breached = {
        contract["experiment_id"]: contract
        for contract in contracts
        if contract["guardrail_breaches"] == [ARRIVAL]
    }
    if not breached:
        return frozenset()
    rows = connection.execute(_SHORTFALLS, {"ids": list(breached)})
    return frozenset(
        row.experiment_id
        for row in rows
        if is_steady_shortfall(breached[row.experiment_id], {"gates": {"shortfall": row.shortfall}})
    )


def _news(contract: Mapping[str, Any], *, steady: bool) -> Iterator[tuple[Event, str]]:
    """Yields the announcements that a contract gives, with their subjects, announced before or not.

    Args:
        contract: The verdict contract.
        steady: Whether only `arrival` is breached, at a steady ratio: a fault of the
            set-up, since whoever hears of a breach goes back.
    """
    if contract["power_state"]["decided"]:
        yield ("closed" if contract["verdict"] == "abstain" else "decided"), ""
        return
    for guardrail in () if steady else contract["guardrail_breaches"]:
        yield "breached", guardrail
    if steady or contract["abstain_reason"] in _FAULTS:
        yield "set_up_fault", ""
