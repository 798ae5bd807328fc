"""A document: a value whose members are the JSON that is stored, served and described."""

import json
from datetime import UTC, datetime
from typing import Annotated

import msgspec

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Interval = tuple[float, float]


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A JSON object with these members, in this order; a member at its default is left out."""


def form_field(label: str, hint: str = "", *, example: str = "", **marks: object) -> msgspec.Meta:
    """Returns the words of a form on a member; `api/dashboard/settings/fields.py` has the marks."""
    return msgspec.Meta(title=label, description=hint, examples=[example], extra=marks)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def document_text(document: object) -> str:
    """Returns the bytes that a document is stored, compared and served as.

    Raises:
        ValueError: A number is not finite: JSON has no word for it.
    """
    return _ENCODER.encode(msgspec.to_builtins(document))


def moment(epoch_seconds: int) -> datetime:
    """Returns a time of the statistics, which count whole seconds since the epoch."""
    return datetime.fromtimestamp(epoch_seconds, tz=UTC)


def time_text(at: datetime) -> str:
    """Returns a time as JSON has it: RFC 3339, in UTC."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
