"""Announcements beside verdicts: the steps of places, and the trial of a webhook."""

from msgspec import structs
from sqlalchemy import Connection, text

from domain.planning.place import Place
from domain.registration import PRODUCTION
from storage.tenants.settings import read_settings
from storage.verdicts.announcements import add_deliveries

_ANNOUNCE_ALONE = text("""
INSERT INTO announcements (
    announcement_id, project_id, experiment_id, kind, subject, announced_at, contract, sentence,
    environment, metric, commit_sha
) VALUES (
    'msg_' || replace(gen_random_uuid()::text, '-', ''), :project_id,
    CAST(:experiment_id AS text), :kind, :subject, clock_timestamp(), coalesce(
        (SELECT contract FROM verdicts WHERE experiment_id = CAST(:experiment_id AS text)), 'null'
    ), :sentence, :environment, :metric, :commit
) RETURNING announcement_id, project_id, kind, announced_at
""")
_PLACE_EVENTS = {"serve": "placed", "promote": "promote", "withdraw": "withdraw"}
_TEST = "This delivery only tries the webhook: no experiment has changed."


def announce_place(connection: Connection, project_id: int, place: Place, *, metric: str) -> None:
    """Announces a step of a place for its owner to take, in the transaction that makes it."""
    if place.action not in _PLACE_EVENTS:
        return
    row = {**structs.asdict(place), "project_id": project_id, "metric": metric}
    row |= {"kind": _PLACE_EVENTS[place.action], "subject": place.place_id}
    add_deliveries(connection, connection.execute(_ANNOUNCE_ALONE, row).all())


def announce_test(connection: Connection, project_id: int, target: str) -> bool:
    """Announces nothing to a webhook, to try it; returns whether the project has that webhook."""
    settings = read_settings(connection, project_id)
    row = {
        **dict.fromkeys(("experiment_id", "commit")),
        "project_id": project_id,
        "kind": "test",
        "subject": "",
        "sentence": _TEST,
        "environment": PRODUCTION,
        "metric": settings.default_metric,
    }
    if target not in {webhook.target for webhook in settings.webhooks}:
        return False
    add_deliveries(connection, connection.execute(_ANNOUNCE_ALONE, row).all(), only=target)
    return True
