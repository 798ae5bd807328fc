"""The payload of a webhook: the body of an announcement in each format."""

import json

from domain.document import document_text, time_text
from orchestration.outbound.links import experiment_address
from storage.tenants.webhook import Format
from storage.verdicts.deliveries import Announcement

_HEADLINES = {
    "decided": "Decided",
    "closed": "Closed without a verdict",
    "breached": "Guardrail breached",
    "suspected": "A harm is suspected",
    "set_up_fault": "Fault of the set-up",
    "base_moved": "Rebase the change",
    "placed": "A place for a change",
    "promote": "Promote the change",
    "withdraw": "Withdraw the change",
    "test": "A test of this webhook",
}


def body_of(announcement: Announcement, kind: Format) -> bytes:
    """Returns an announcement in a webhook's format; the same at every attempt, to the byte."""
    if kind == "raw":
        return _raw(announcement).encode()
    document = _slack(announcement) if kind == "slack" else _github(announcement)
    return document_text(document).encode()


def _raw(announcement: Announcement) -> str:
    """Returns type, time and data (Standard Webhooks 1.0.0), the contract as it was served."""
    head = document_text(
        {
            "type": f"deploy_reward.{announcement.kind}",
            "timestamp": time_text(announcement.announced_at),
            "data": _facts(announcement),
        }
    )
    return f'{head.removesuffix("}}")},"contract":{announcement.contract}}}}}'


def _slack(announcement: Announcement) -> dict[str, str]:
    headline = _HEADLINES[announcement.kind]
    if announcement.subject:
        headline += f": {announcement.subject}"
    where = [announcement.project, announcement.environment, announcement.metric]
    if announcement.commit:
        where.append(announcement.commit[:12])
    lines = [announcement.title, announcement.sentence, ", ".join(where)]
    text = "\n".join(slack_text(line) for line in lines if line)
    return {"text": f"*{slack_text(headline)}*\n{text}{_slack_link(announcement.experiment_id)}"}


def _slack_link(experiment_id: str | None) -> str:
    """Returns an experiment's id in brackets, as a link to its page where we know our address."""
    if experiment_id is None:
        return ""
    address = experiment_address(experiment_id)
    return f" ({experiment_id})" if address is None else f" (<{address}|{experiment_id}>)"


def slack_text(text: str) -> str:
    """Returns text that Slack reads as text: neither as a mention nor as a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _github(announcement: Announcement) -> dict[str, object]:
    """Returns a `repository_dispatch`, whose payload may hold ten members at most."""
    contract = json.loads(announcement.contract)
    return {
        "event_type": f"deploy_reward_{announcement.kind}",
        "client_payload": {
            "webhook_id": announcement.announcement_id,
            "timestamp": time_text(announcement.announced_at),
            **_facts(announcement),
            "contract": contract,
        },
    }


def _facts(announcement: Announcement) -> dict[str, object]:
    return {
        "project": announcement.project,
        "experiment_id": announcement.experiment_id,
        "environment": announcement.environment,
        "commit": announcement.commit,
        "metric": announcement.metric,
        "subject": announcement.subject or None,
        "sentence": announcement.sentence,
    }
