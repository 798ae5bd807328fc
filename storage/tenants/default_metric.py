"""The default metric of a project that chose none: a revenue event that its servers send."""

from sqlalchemy import Connection, text

from storage.tenants.audit_trail import PROGRAM, Change, record_action
from storage.tenants.settings import Settings, store_settings, stored_settings

# The other revenue and funnel events in the interface's order, but for subscription_churned: to
# lose fewer subscriptions is seldom what a change is made for.
_IN_ORDER = (
    *("signup_completed", "trial_started", "paywall_viewed", "trial_to_paid"),
    *("subscription_renewed", "expansion"),
)
_MEMBER = "default_metric"
# Anybody who has a public key can send a name to `/v1/events`.
_CAME = text("""
SELECT event FROM seen_names WHERE project_id = :project_id AND event = ANY(:names) AND vouched
""")
_PAID = text("""
SELECT EXISTS (SELECT FROM revenue_events WHERE project_id = :project_id AND event = :event)
""")


def default_metric(connection: Connection, project_id: int, settings: Settings) -> str:
    """Returns the target of a registration that names none.

    That is the project's choice; without it `activation`, unless it never came with the write key
    while others of the eight names came as revenue events: then the first of these.
    """
    chosen = settings.default_metric
    if _MEMBER in stored_settings(connection, project_id):
        return chosen
    names = [chosen, *_IN_ORDER]
    came = connection.execute(_CAME, {"project_id": project_id, "names": names}).scalars().all()
    for name in () if chosen in came else [name for name in _IN_ORDER if name in came]:
        if connection.execute(_PAID, {"project_id": project_id, "event": name}).scalar_one():
            return name
    return chosen


def settled_metric(connection: Connection, project_id: int, settings: Settings) -> str:
    """Returns the default metric, and makes it the project's choice where revenue events gave it.

    So the same registration has the same target later. Nobody chose a target late by this change of
    settings: it has a name of its own in the audit trail.

    Args:
        connection: In a transaction that holds the project's own lock.
    """
    metric = default_metric(connection, project_id, settings)
    if metric != settings.default_metric:
        stored = stored_settings(connection, project_id)
        store_settings(connection, project_id, {**stored, _MEMBER: metric})
        change = Change(member=_MEMBER, before=settings.default_metric, after=metric)
        record_action(
            connection, project_id, "default_metric_settled", by=PROGRAM, changes=[change]
        )
    return metric
