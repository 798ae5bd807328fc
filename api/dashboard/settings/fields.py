"""The fields of a settings' form, made of the members of a struct as `form_field` declares them.

Marks of a member: `choices`, the words of its values; `offers_events`, where the names of events
that came are offered; `folded`, while it is as by default; `secret`, whose stored value is never
shown; `mentions`, further words by which a refusal means it.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from api.dashboard.page.form import YES, Control, Field, written
from storage.tenants.setting_rule import alternatives, plain


def fields_of(shape: type[msgspec.Struct], *, optional: bool = False) -> list[Field]:
    """Returns the fields of a form for a struct's members, and for those of structs in it."""
    kind = inspect.type_info(shape)
    assert isinstance(kind, inspect.StructType)  # noqa: S101 - for the type checker
    return list(_fields(kind, optional=optional))


def _fields(kind: inspect.StructType, *, optional: bool, path: str = "") -> Iterator[Field]:
    for member in kind.fields:
        name = f"{path}{member.name}"
        if isinstance(member.type, inspect.StructType):
            yield from _fields(member.type, optional=optional, path=f"{name}.")
        elif isinstance(member.type, inspect.Metadata):
            yield _field(member, member.type, name=name, optional=optional)


def _field(
    member: inspect.Field, declared: inspect.Metadata, *, name: str, optional: bool
) -> Field:
    words, marks = declared.extra_json_schema or {}, dict(declared.extra or {})
    for other in ("rule", "frozen"):
        marks.pop(other, None)
    hint = words["description"]
    kind, *others = alternatives(declared)
    held, inputs = kind, _INPUTS
    if isinstance(kind, inspect.ListType):
        held, inputs = plain(kind.item_type), _LISTS
    control, reads = inputs.get(type(held), ("line", str.strip))
    if isinstance(kind, inspect.DictType):
        control = "entries" if isinstance(kind.value_type, inspect.StructType) else control
        reads = reads if isinstance(kind.value_type, inspect.FloatType) else _listed
    default: Any = "" if member.default is msgspec.NODEFAULT else member.default
    if member.default_factory is not msgspec.NODEFAULT:
        default = member.default_factory()
    can_be_none = any("none" in getattr(each, "values", ()) for each in others)
    if choices := marks.get("choices", {}):
        control = _WITH_CHOICES.get(control, control)
    return Field(
        name=name,
        label=words["title"],
        hint=f"{hint} One a line." if control == "lines" and "a line" not in hint else hint,
        control=control,
        reads=reads,
        optional=optional and (not choices or "" in choices),
        default="" if reads in _KEYBOARDS or default is None else written(default, control),
        nothing="none" if can_be_none else "",
        example=words["examples"][0],
        keyboard="text" if can_be_none else _KEYBOARDS.get(reads, "text"),
        **marks,
    )


def _whole(text: str) -> object:
    """Returns a whole number; of anything else the text, which its rule then refuses."""
    try:
        return int(text)
    except ValueError:
        return text.strip()


def _number(text: str) -> object:
    """Returns a number; of anything else the text, which its rule then refuses."""
    try:
        number = float(text)
    except ValueError:
        return text.strip()
    return number if math.isfinite(number) else text.strip()


def _lines(text: str) -> object:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _rates(text: str) -> object:
    """Returns the number behind the name on each line that is not empty."""
    parted = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return {name: _number("".join(rest)) for name, *rest in parted}


def _listed(text: str) -> object:
    """Returns the values behind the name on each line, which commas part."""
    parted = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return {name: re.split(r"\s*,\s*", "".join(rest).strip()) for name, *rest in parted}


def _split(read: Callable[[str], object]) -> Callable[[str], object]:
    """Returns what reads a list whose entries commas or spaces part."""
    return lambda text: [read(part) for part in re.split(r"[,\s]+", text) if part]


# The kind of input of a member's type, and what makes a value of the typed text; of a list by its
# entries.
_INPUTS: Mapping[type[inspect.Type], tuple[Control, Callable[[str], object]]] = {
    inspect.BoolType: ("check", lambda text: text == YES),
    inspect.IntType: ("line", _whole),
    inspect.FloatType: ("line", _number),
    inspect.DictType: ("lines", _rates),
}
_LISTS: Mapping[type[inspect.Type], tuple[Control, Callable[[str], object]]] = {
    inspect.IntType: ("line", _split(_whole)),
    inspect.FloatType: ("line", _split(_number)),
    inspect.StrType: ("lines", _lines),
    inspect.LiteralType: ("lines", _lines),
    inspect.StructType: ("entries", _lines),
}
_WITH_CHOICES: Mapping[Control, Control] = {"line": "choice", "lines": "checks"}
_KEYBOARDS: Mapping[Callable[[str], object], str] = {_whole: "numeric", _number: "decimal"}
