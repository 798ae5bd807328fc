"""A form: its fields, the text typed into them, the fault beside each, and the page around it."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import parse_qs

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.page.markup import page
from api.dashboard.page.visit import read_for_visitor, require_own_origin
from api.wire.body import read_body
from api.wire.problem import Problem
from storage.postgres.refusal import Invalid
from storage.tenants.keys import Role
from storage.tenants.sign_ins import Visitor

_MEDIA = "application/x-www-form-urlencoded"
_MOST_FIELDS = 64
YES = "yes"
READ_ONLY = "You are signed in to read: nothing was changed."
ShownT = TypeVar("ShownT")

Control = Literal["line", "lines", "choice", "check", "checks", "entries"]
Texts = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a form.

    Attributes:
        control: The kind of input; `entries` have a page of their own.
        default: Its text while the member is not stored.
        nothing: Its text while the member is null.
        secret: Whether the stored value is never shown, and stays if nothing is typed.
    """

    name: str
    label: str
    hint: str = ""
    control: Control = "line"
    choices: Mapping[str, str] = member(default_factory=lambda: MappingProxyType({}))
    reads: Callable[[str], object] = str.strip
    optional: bool = False
    default: str = ""
    nothing: str = ""
    mentions: tuple[str, ...] = ()
    secret: bool = False
    example: str = ""
    offers_events: bool = False
    folded: bool = False
    keyboard: str = "text"


@dataclass(frozen=True, kw_only=True)
class ShownField:
    """A field as a page shows it: the typed text, its fault, and the value stored meanwhile."""

    field: Field
    text: str
    fault: str | None
    meanwhile: str | None


@dataclass(frozen=True, kw_only=True)
class Form:
    """The values that a page of ours posted."""

    values: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """Returns the text of a field; empty where there is none."""
        return self.values.get(name, [""])[0]

    def texts(self, fields: Sequence[Field]) -> dict[str, str]:
        """Returns the text of each field; several choices are separated by line breaks."""
        return {
            field.name: "\n".join(self.values.get(field.name, [])).replace("\r\n", "\n")
            for field in fields
        }


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The reply to a form on its own page: why nothing was stored, and the text typed into it.

    Attributes:
        key: Of a form of an entry, whose it is; empty of a new entry's.
        texts: The typed text; None where none is kept.
        faults: By field; those of none alone have no name.
    """

    status: int = 200
    key: str = ""
    texts: Texts | None = None
    faults: Mapping[str, str] = member(default_factory=dict[str, str])
    note: str | None = None
    meanwhile: Texts | None = None


@dataclass(frozen=True, kw_only=True)
class FormPage(Generic[ShownT]):
    """A page with forms, which owners alone save.

    Attributes:
        save: Carries out a form, before that; returns the reply, None where all is done.
    """

    template: str
    read: Callable[[Connection, Visitor], ShownT]
    save: Callable[[Connection, Visitor, Form], Reply | None]
    show: Callable[[Request, ShownT, Reply], dict[str, Any]]

    async def get(self, request: Request) -> Response:
        """Return the page."""
        _, shown = await read_for_visitor(request, self.read)
        return self._page(request, shown, Reply())

    async def post(self, request: Request) -> Response:
        """Carry out a form, or return the page with the reply."""
        form = await posted(request)

        def saving(connection: Connection, visitor: Visitor) -> tuple[Reply | None, ShownT]:
            reply: Reply | None = Reply(status=403, note=READ_ONLY)
            if visitor.role is Role.OWNER:
                reply = self.save(connection, visitor, form)
            return reply, self.read(connection, visitor)

        _, (reply, shown) = await read_for_visitor(request, saving)
        if reply is None:
            return RedirectResponse(f"{request.scope['path']}?saved", status_code=303)
        return self._page(request, shown, reply)

    def _page(self, request: Request, shown: ShownT, reply: Reply) -> Response:
        return page(
            request,
            self.template,
            status=reply.status,
            note=reply.note,
            saved="saved" in request.query_params,
            **self.show(request, shown, reply),
        )


async def posted(request: Request) -> Form:
    """Returns the form of a post.

    Raises:
        Problem: No page of ours sent it, or it cannot be read.
    """
    require_own_origin(request)
    raw = await read_body(request, media=(_MEDIA,))
    try:
        values = parse_qs(raw.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Problem("invalid_request", "the form cannot be read") from None
    if any("\x00" in text for texts in values.values() for text in texts):
        raise Problem("invalid_request", "the form holds a character that cannot be stored")
    return Form(values=values)


def document(fields: Sequence[Field], texts: Texts) -> dict[str, object]:
    """Returns the members that were typed."""
    members: dict[str, Any] = {}
    for field in fields:
        text = texts[field.name]
        if field.optional and not text.strip():
            continue
        member, _, inner = field.name.partition(".")
        if inner:
            members.setdefault(member, {})[inner] = field.reads(text)
        else:
            members[member] = field.reads(text)
    return members


def texts_of(fields: Sequence[Field], stored: Mapping[str, object]) -> dict[str, str]:
    """Returns stored members as people type them; nothing of a secret."""
    return {field.name: "" if field.secret else _text_of(field, stored) for field in fields}


def shown_fields(
    fields: Sequence[Field],
    texts: Texts,
    *,
    faults: Mapping[str, str] | None = None,
    meanwhile: Texts | None = None,
) -> list[ShownField]:
    """Returns fields as a page shows them."""
    return [
        ShownField(
            field=field,
            text=texts[field.name],
            fault=(faults or {}).get(field.name),
            meanwhile=_meanwhile(field, texts, meanwhile),
        )
        for field in fields
    ]


def faults_of(fields: Sequence[Field], refusal: Invalid) -> dict[str, str]:
    """Returns a refusal by the field that it is of; by no name where it is of none alone."""
    pointed = refusal.pointer.strip("/").replace("/", ".")
    parts = pointed.split(".")
    mentioned = re.findall(r"\w+", refusal.detail)
    places = (
        *(field.name for field in fields if field.name == pointed),
        *(field.name for part in reversed(parts) for field in fields if part == field.name),
        *(
            field.name
            for word in mentioned
            for field in fields
            if word in (field.name, *field.mentions)
        ),
        *(field.name for part in parts for field in fields if part in field.mentions),
        "",
    )
    return {places[0]: _plain(refusal.detail)}


def digest_of(shown: object) -> str:
    """Returns the digest of shown values; a form carries it, so that later changes are noticed."""
    text = json.dumps(shown, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _meanwhile(field: Field, texts: Texts, stored: Texts | None) -> str | None:
    if stored is None or field.secret:
        return None
    if field.reads(texts[field.name]) == field.reads(stored[field.name]):
        return None
    if field.control == "check":
        return "on" if stored[field.name] else "off"
    return ", ".join(stored[field.name].splitlines()) or "nothing"


def _text_of(field: Field, stored: Mapping[str, object]) -> str:
    value: Any = stored
    for part in field.name.split("."):
        if part not in value:
            return field.default
        value = value[part]
    return field.nothing if value is None else written(value, field.control)


def written(value: object, control: Control) -> str:
    """Returns a value as people type it into a kind of input."""
    if isinstance(value, list):
        between = ", " if control == "line" else "\n"
        return between.join(written(entry, control) for entry in value)
    if isinstance(value, dict):
        return "\n".join(f"{name} {written(entry, 'line')}" for name, entry in value.items())
    if isinstance(value, bool):
        return YES if value else ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _plain(detail: str) -> str:
    """Returns the fault of a field as a sentence that stands beside it."""
    if detail.endswith(" is missing"):
        return "This must not be empty."
    if detail.startswith("must "):
        return f"This {detail}."
    return f"{detail[:1].upper() if ' ' in detail[:3] else detail[:1]}{detail[1:]}."
