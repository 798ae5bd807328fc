"""Changes of a project's settings: newly chosen members, checked, stored and audited."""

import json
import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Any
from unicodedata import normalize

import msgspec
from sqlalchemy import Connection, text

from domain.metric import composed_name
from storage.postgres.refusal import Invalid
from storage.schema.policy_columns import BY_USER
from storage.tenants.audit_trail import PROGRAM, Actor, Change, record_action
from storage.tenants.receiver_address import (
    RefusedAddressError,
    private_receivers_allowed,
    require_host,
)
from storage.tenants.settings import (
    DOLLARS,
    Settings,
    parse_settings,
    store_settings,
    stored_settings,
)
from storage.tenants.webhook import Webhook, masked

# As browsers send it: no path, and names beyond ASCII as punycode.
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[\w.:\[\]-]+/?", re.ASCII | re.IGNORECASE)


def chosen_settings(chosen: Mapping[str, object]) -> Settings:
    """Returns the settings of a project that chooses these members now.

    Stored addresses and values may break rules of a later release; newly chosen ones may not.

    Raises:
        Invalid: A member is unknown or breaks its rule; the pointer names it.
    """
    settings = parse_settings(chosen)
    _require_names(settings)
    for number, origin in enumerate(settings.allowed_origins):
        if not _ORIGIN.fullmatch(origin):
            detail = f"{origin!r} is no origin: write https://HOST[:PORT], without a path"
            raise Invalid("invalid_setting", detail, pointer=f"/allowed_origins/{number}")
    for number, network in enumerate(settings.trusted_proxies):
        if not _is_network(network):
            detail = f"{network!r} is no network: write 10.0.0.0/8, or an address"
            raise Invalid("invalid_setting", detail, pointer=f"/trusted_proxies/{number}")
    for number, value in enumerate(settings.value_routes):
        if not value.counts:
            detail = f"{value.currency!r} is refused: give the value in dollars ({DOLLARS})"
            raise Invalid("invalid_setting", detail, pointer=f"/value_routes/{number}/currency")
    _require_hosts(settings.webhooks)
    return settings


def _require_hosts(webhooks: Sequence[Webhook]) -> None:
    for number, webhook in enumerate(webhooks):
        try:
            require_host(webhook.host, private=private_receivers_allowed())
        except RefusedAddressError as refused:
            detail = f"{webhook.host}: {refused}"
            raise Invalid("invalid_setting", detail, pointer=f"/webhooks/{number}/url") from None


_NAMING = ("default_metric", "guardrails", "metrics", "value_routes")


def _composed(value: object) -> object:
    if isinstance(value, str):
        return normalize("NFC", value)
    if isinstance(value, list):
        return [_composed(item) for item in value]
    if isinstance(value, dict):
        return {_composed(key): _composed(item) for key, item in value.items()}
    return value


def _require_names(settings: Settings) -> None:
    """Refuses names that no event and no property can have."""
    members = ("default_metric", "unit", "span_event", "span_unit")
    named = [(f"/{member}", getattr(settings, member)) for member in members]
    named += [(f"/segments/{place}", name) for place, name in enumerate(settings.segments)]
    named += [(f"/guardrails/{place}", name) for place, name in enumerate(settings.guardrails)]
    for metric, definition in settings.metrics.items():
        sources = enumerate(definition.sources or ())
        named += [
            ("/metrics/*", metric),
            *((f"/metrics/*/sources/{n}", name) for n, name in sources),
        ]
    for pointer, name in named:
        try:
            composed_name(name)
        except ValueError as broken:
            raise Invalid("invalid_setting", f"a name {broken}", pointer=pointer) from None


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def apply_settings(
    connection: Connection, project_id: int, chosen: Mapping[str, object], *, by: Actor = PROGRAM
) -> Settings:
    """Replaces the named members of a project's settings; the others stay as they are.

    Raises:
        Invalid: A member is unknown or breaks its rule; nothing is stored.
    """
    stored = stored_settings(connection, project_id, lock=True)
    merged = {**stored, **chosen}
    # Names as events are stored.
    merged |= {member: _composed(chosen[member]) for member in _NAMING if member in chosen}
    settings = parse_settings(merged)
    chosen_settings(chosen)
    if settings.unit_property != Settings(unit=stored.get("unit", "auto")).unit_property:
        _require_none_counted(connection, project_id)
    store_settings(connection, project_id, merged)
    if changes := changes_between(_audited(stored), _audited(merged)):
        record_action(connection, project_id, "settings_changed", by=by, changes=changes)
    return settings


# The log has a single name of each event's unit beside its session.
_COUNTED = text(f"""
SELECT x.experiment_id FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
WHERE x.project_id = :project_id AND x.bound_at IS NOT NULL
  AND (NOT v.decided OR f.state = 'running')
  AND ({BY_USER} OR x.binding #>> '{{settings,unit}}' NOT IN ('auto', 'session'))
ORDER BY 1 LIMIT 1
""")


def _require_none_counted(connection: Connection, project_id: int) -> None:
    bound = {"project_id": project_id}
    if (experiment := connection.execute(_COUNTED, bound).scalar_one_or_none()) is not None:
        detail = f"{experiment} counts by the unit of before: it has to end, or close it"
        raise Invalid("invalid_setting", detail, pointer="/unit")


def _audited(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns stored choices with the defaults for the rest, and without secrets.

    Not parsed: choices that an earlier release took may break a rule of this release.
    """
    defaults: dict[str, Any] = msgspec.to_builtins(Settings())
    document = {**defaults, **stored}
    return {
        **document,
        "rate_limits": {**defaults["rate_limits"], **document["rate_limits"]},
        "webhooks": [masked(webhook) for webhook in document["webhooks"]],
    }


def metric_renamed(stored: Mapping[str, Any], old: str, new: str) -> dict[str, object]:
    """Returns the members that name a metric, beside its own, once it has a new name."""
    settings = parse_settings(stored)
    added: dict[str, object] = {}
    if settings.default_metric == old:
        added["default_metric"] = new
    if old in settings.guardrails:
        names = [new if name == old else name for name in settings.guardrails]
        added["guardrails"] = list(dict.fromkeys(names))
    if any(value.metric == old for value in settings.value_routes):
        added["value_routes"] = [
            {**row, "metric": new} if row["metric"] == old else row
            for row in stored["value_routes"]
        ]
    return added


def settings_document(settings: Settings) -> dict[str, object]:
    """Returns settings as plain JSON values, for showing; of a webhook's address the host alone."""
    document: dict[str, object] = json.loads(msgspec.json.encode(settings))
    document["webhooks"] = [
        {**msgspec.to_builtins(webhook), "url": webhook.shown} for webhook in settings.webhooks
    ]
    return document


def changes_between(before: Mapping[str, object], after: Mapping[str, object]) -> list[Change]:
    """Returns the members that differ between two documents.

    Of a member that is an object each of its own members is a change.
    """
    changes: list[Change] = []
    for member in sorted(before.keys() | after.keys()):
        old, new = before.get(member), after.get(member)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner: list[Change] = changes_between(old, new)
            changes += [
                Change(member=f"{member}.{change.member}", before=change.before, after=change.after)
                for change in inner
            ]
        else:
            changes.append(Change(member=member, before=old, after=new))
    return changes
