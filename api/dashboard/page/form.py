"""A form: what it asks, what was typed into it, and the fault beside each field."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import parse_qs

from starlette.requests import Request

from api.dashboard.page.visit import require_own_origin
from api.wire.body import read_body
from api.wire.problem import Problem
from storage.postgres.refusal import Invalid

_MEDIA = "application/x-www-form-urlencoded"
_MOST_FIELDS = 64
YES = "yes"

Control = Literal["line", "lines", "choice", "check", "checks"]
Texts = Mapping[str, str]


def whole(text: str) -> object:
    """Returns a whole number; of anything else the text, which its rule then refuses."""
    try:
        return int(text)
    except ValueError:
        return text.strip()


def number(text: str) -> object:
    """Returns a number; of anything else the text, which its rule then refuses."""
    try:
        found = float(text)
    except ValueError:
        return text.strip()
    return found if math.isfinite(found) else text.strip()


def lines(text: str) -> object:
    """Returns what stands on the lines that are not empty."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def whole_numbers(text: str) -> object:
    """Returns the whole numbers of a list that commas or spaces part."""
    return [whole(part) for part in re.split(r"[,\s]+", text) if part]


def ticked(text: str) -> object:
    """Returns whether a box is ticked."""
    return text == YES


@dataclass(frozen=True, kw_only=True)
class Field:
    """One thing that a form asks.

    Attributes:
        name: The member that it sets; a dot leads into a member of members.
        label: What it is called.
        hint: What it means.
        control: What one types into or chooses from.
        choices: Values and what they are called.
        reads: Makes a value of a text.
        optional: Whether the member is left out where nothing is typed.
        default: What stands in it while the member is not stored.
        nothing: What stands in it while the member is null.
        mentions: Words, beside its name, by which a refusal means it.
        secret: Whether what is stored is never shown, and stays where nothing is typed.
        example: What stands in it, greyed, while it is empty.
    """

    name: str
    label: str
    hint: str = ""
    control: Control = "line"
    choices: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    reads: Callable[[str], object] = str.strip
    optional: bool = False
    default: str = ""
    nothing: str = ""
    mentions: tuple[str, ...] = ()
    secret: bool = False
    example: str = ""

    @property
    def keyboard(self) -> str:
        """The keyboard that phones show."""
        if self.reads is whole:
            return "numeric"
        return "decimal" if self.reads is number else "text"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A field as a page shows it: what was typed, what is wrong, what others stored meanwhile."""

    field: Field
    text: str
    fault: str | None
    meanwhile: str | None


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a page of ours posted."""

    told: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """Returns what was typed into a field; empty where there is none."""
        return self.told.get(name, [""])[0]

    def texts(self, fields: Sequence[Field]) -> dict[str, str]:
        """Returns what was typed into each field; choices of many stand on lines."""
        return {
            one.name: "\n".join(self.told.get(one.name, [])).replace("\r\n", "\n") for one in fields
        }


async def posted(request: Request) -> Form:
    """Returns the form of a post.

    Raises:
        Problem: No page of ours sent it, or it cannot be read.
    """
    require_own_origin(request)
    raw = await read_body(request, media=(_MEDIA,))
    try:
        told = parse_qs(raw.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Problem("invalid_request", "the form cannot be read") from None
    if any("\x00" in text for texts in told.values() for text in texts):
        raise Problem("invalid_request", "the form holds a character that cannot be stored")
    return Form(told=told)


def document(fields: Sequence[Field], texts: Texts) -> dict[str, Any]:
    """Returns the members that were typed."""
    found: dict[str, Any] = {}
    for one in fields:
        text = texts[one.name]
        if one.optional and not text.strip():
            continue
        member, _, inner = one.name.partition(".")
        if inner:
            found.setdefault(member, {})[inner] = one.reads(text)
        else:
            found[member] = one.reads(text)
    return found


def texts_of(fields: Sequence[Field], stored: Mapping[str, Any]) -> dict[str, str]:
    """Returns stored members as one would type them; nothing of a secret."""
    return {one.name: "" if one.secret else _text_of(one, stored) for one in fields}


def asked(
    fields: Sequence[Field],
    texts: Texts,
    *,
    faults: Mapping[str, str] | None = None,
    meanwhile: Texts | None = None,
) -> list[Asked]:
    """Returns fields as a page shows them."""
    return [
        Asked(
            field=one,
            text=texts[one.name],
            fault=(faults or {}).get(one.name),
            meanwhile=_meanwhile(one, texts, meanwhile),
        )
        for one in fields
    ]


def faults_of(fields: Sequence[Field], refusal: Invalid) -> dict[str, str]:
    """Returns a refusal by the field that it is of; by no name where it is of none alone."""
    pointed = refusal.pointer.strip("/").replace("/", ".")
    parts = pointed.split(".")
    mentioned = re.findall(r"\w+", refusal.detail)
    places = (
        *(one.name for one in fields if one.name == pointed),
        *(one.name for part in reversed(parts) for one in fields if part == one.name),
        *(one.name for word in mentioned for one in fields if word in (one.name, *one.mentions)),
        *(one.name for part in parts for one in fields if part in one.mentions),
        "",
    )
    return {places[0]: _plain(refusal.detail)}


def digest_of(shown: object) -> str:
    """Returns what a form carries of what it showed, so that a change meanwhile is seen."""
    text = json.dumps(shown, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _meanwhile(one: Field, texts: Texts, stored: Texts | None) -> str | None:
    if stored is None or one.secret or _same(one, texts[one.name], stored[one.name]):
        return None
    if one.control == "check":
        return "on" if stored[one.name] else "off"
    return ", ".join(stored[one.name].splitlines()) or "nothing"


def _same(one: Field, text: str, other: str) -> bool:
    return one.reads(text) == one.reads(other)


def _text_of(one: Field, stored: Mapping[str, Any]) -> str:
    value: Any = stored
    for part in one.name.split("."):
        if part not in value:
            return one.default
        value = value[part]
    if isinstance(value, list):
        between = "\n" if one.control in ("lines", "checks") else ", "
        return between.join(_written(entry) for entry in value)
    return one.nothing if value is None else _written(value)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return YES if value else ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


# The store's rules speak of programs' types.
_PLAIN: Sequence[tuple[str, str]] = (
    (r"Expected `int[^`]*`, got `str`", "This must be a whole number."),
    (r"Expected `float[^`]*`, got `str`", "This must be a number."),
    (r"Expected `(?:int|float)` >= (\S+?)(?:\.0)?", r"At least \1."),
    (r"Expected `(?:int|float)` <= (\S+?)(?:\.0)?", r"At most \1."),
    (r"Expected `(?:int|float)` > (\S+?)(?:\.0)?", r"More than \1."),
    (r"Expected `(?:int|float)` < (\S+?)(?:\.0)?", r"Less than \1."),
    (r"Expected `str` of length >= 1", "This must not be empty."),
    (r"Object missing required field .*", "This must not be empty."),
    (r"Expected `str` of length <= (\d+)", r"At most \1 characters."),
    (r"Expected `array` of length >= 1", "At least one."),
    (r"Expected `array` of length <= (\d+)", r"At most \1."),
    (r"Invalid enum value .*", "This is none of the values that it takes."),
)


def _plain(detail: str) -> str:
    for pattern, words in _PLAIN:
        if found := re.fullmatch(pattern, detail, re.DOTALL):
            return found.expand(words)
    return f"{detail[:1].upper() if ' ' in detail[:3] else detail[:1]}{detail[1:]}."
