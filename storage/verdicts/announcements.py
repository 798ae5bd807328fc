"""Announcements: a project's messages on its verdicts, each once ever, kept for delivery."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from sqlalchemy import Connection, Row, text
from sqlalchemy.dialects.postgresql import insert

from domain.contract import Contract
from domain.evidence.breach import breach_action
from domain.evidence.document import evidence_of, looked_at
from domain.wording.base_move import base_move_advice, base_move_sentence
from domain.words import Action
from storage.experiments.serving import control_states
from storage.schema.policy_columns import IS_PAST
from storage.schema.tables import deliveries
from storage.tenants.settings import read_settings
from storage.tenants.webhook import Event
from storage.verdicts.situations import IN_SHORT, read_situations

_FAULTS = ("non_identifiable", "interacting")

_ANNOUNCE = text(f"""
-- The key holds that each is announced once; a rebuild that publishes all anew adds nothing.
INSERT INTO announcements (
    announcement_id, project_id, experiment_id, kind, subject,
    announced_at, contract, sentence, environment, metric, commit_sha
)
SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), v.project_id, v.experiment_id,
       news.kind, news.subject, clock_timestamp(), v.contract,
       coalesce(news.sentence, v.evidence ->> 'sentence'),
       x.environment, x.target_metric, x.treatment_commit
FROM unnest(
    CAST(:ids AS text[]), CAST(:kinds AS text[]), CAST(:subjects AS text[]),
    CAST(:sentences AS text[])
) AS news (experiment_id, kind, subject, sentence)
JOIN verdicts AS v USING (experiment_id)
JOIN experiments AS x USING (experiment_id)
WHERE NOT {IS_PAST}
ON CONFLICT (experiment_id, kind, subject) DO NOTHING
RETURNING announcement_id, project_id, kind, announced_at
""")


def announce(
    connection: Connection, contracts: Sequence[Contract], *, suspected: Collection[str] = ()
) -> int:
    """Announces what these contracts tell that was not announced before.

    Args:
        connection: In the transaction that published the contracts.
        suspected: The experiments of them of which the test alone says that they are worse.

    Returns:
        How many announcements that makes; each waits for delivery to the project's webhooks of
        this moment.
    """
    breached = _breached(connection, contracts)
    return _announce(
        connection,
        [
            (contract.experiment_id, kind, subject, sentence if kind == "breached" else None)
            for contract in contracts
            for sentence, action in [breached.get(contract.experiment_id, (None, None))]
            for kind, subject in _news(
                contract, asks_for=action, suspected=contract.experiment_id in suspected
            )
        ],
    )


def announce_base_moves(
    connection: Connection, project_id: int, environment: str, *, known_at: datetime | None = None
) -> int:
    """Announces the open experiments that lost their control, each once for the build in its place.

    Args:
        connection: In the transaction that recorded a deploy.
    """
    states = control_states(connection, project_id, environment, known_at=known_at)
    return _announce(
        connection,
        [
            (
                experiment_id,
                "base_moved",
                move.rebase_on,
                " ".join(
                    [
                        base_move_sentence(move.rebase_on),
                        *base_move_advice(move.rebase_on, move.changes, continues=move.continues),
                    ]
                ),
            )
            for experiment_id, state in states.items()
            if (move := state.moved) is not None
        ],
    )


_SHIPPED_TO_ALL = text("""
-- Only a build that is not declared a canary takes the place of another by what is seen of it.
SELECT DISTINCT d.project_id, d.environment
FROM unnest(CAST(:projects AS bigint[]), CAST(:environments AS text[]))
    AS asked (project_id, environment)
JOIN deploys AS d USING (project_id, environment)
WHERE d.withdrawn_at IS NULL AND coalesce(d.allocation = 1, true)
  AND d.deployed_at > CAST(:known_at AS timestamptz) - interval '1 day'
  AND EXISTS (
      SELECT FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
      WHERE x.project_id = d.project_id AND x.environment = d.environment
        AND x.bound_at IS NOT NULL AND NOT v.decided
  )
""")


def announce_seen_base_moves(
    connection: Connection, environments: Collection[tuple[int, str]], *, known_at: datetime
) -> None:
    """Announces base moves that sessions showed, where deploys of the last day left them open.

    Args:
        connection: In the transaction that noted the seen commits.
    """
    bound = {
        "projects": [project_id for project_id, _ in environments],
        "environments": [environment for _, environment in environments],
        "known_at": known_at,
    }
    for row in connection.execute(_SHIPPED_TO_ALL, bound).all():
        announce_base_moves(connection, row.project_id, row.environment, known_at=known_at)


def _announce(connection: Connection, news: Sequence[tuple[str, Event, str, str | None]]) -> int:
    if not news:
        return 0
    ids, kinds, subjects, sentences = (list(column) for column in zip(*news, strict=True))
    announced = connection.execute(
        _ANNOUNCE, {"ids": ids, "kinds": kinds, "subjects": subjects, "sentences": sentences}
    ).all()
    add_deliveries(connection, announced)
    return len(announced)


def add_deliveries(
    connection: Connection,
    announced: Sequence[Row[str, int, str, datetime]],
    *,
    only: str | None = None,
) -> None:
    """Has the webhooks that ask for them wait for announcements, or a single webhook.

    Args:
        announced: The id, the project, the kind and the time of each.
    """
    webhooks = {
        project_id: read_settings(connection, project_id).webhooks
        for project_id in {project_id for _, project_id, _, _ in announced}
    }
    waiting = [
        {"announcement_id": name, "target": webhook.target, "next_attempt_at": announced_at}
        for name, project_id, kind, announced_at in announced
        for webhook in webhooks[project_id]
        if (kind in webhook.events if only is None else webhook.target == only)
    ]
    if waiting:
        connection.execute(insert(deliveries).values(waiting))


_EVIDENCE = text(f"""
SELECT v.experiment_id, {IN_SHORT} AS evidence FROM verdicts AS v WHERE experiment_id = ANY(:ids)
""")


def _breached(
    connection: Connection, contracts: Sequence[Contract]
) -> dict[str, tuple[str | None, Action | None]]:
    """Returns the sentence and the action of each experiment with a breached guardrail."""
    asked = {each.experiment_id: each for each in contracts if each.guardrail_breaches}
    if not asked:
        return {}
    rows = connection.execute(_EVIDENCE, {"ids": list(asked)})
    published = {
        row.experiment_id: (asked[row.experiment_id], evidence_of(row.evidence)) for row in rows
    }
    current = read_situations(connection, published)
    return {
        name: (
            None if (known := current[name].evidence) is None else known.sentence,
            breach_action(contract, looked_at(evidence)),
        )
        for name, (contract, evidence) in published.items()
    }


def _news(
    contract: Contract, *, asks_for: Action | None, suspected: bool
) -> Iterator[tuple[Event, str]]:
    """Yields the announcements that a contract gives, with their subjects, announced before or not.

    Args:
        asks_for: The step that its breaches ask for. A fault of the set-up is no breach: whoever
            hears of a breach goes back.
    """
    if contract.decided:
        yield ("closed" if contract.verdict == "abstain" else "decided"), ""
        return
    if suspected:
        yield "suspected", ""
    for guardrail in () if asks_for is Action.FIX else contract.guardrail_breaches:
        yield "breached", guardrail
    if asks_for is Action.FIX or contract.abstain_reason in _FAULTS:
        yield "set_up_fault", ""
