"""The rule that a refused setting breaks, in words, with the refused value."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

# How msgspec names a place: `$.rate_limits.per_key`, `$.segments[0]`, and `[...]` for an entry of
# an object, whose key it does not say.
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_BY_TYPE = ("Expected `", "Invalid enum value")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_LONGEST_SHOWN = 40
_NOUNS: dict[type[inspect.Type], str] = {
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
    inspect.StrType: "a text",
    inspect.ListType: "a list",
    inspect.DictType: "a table",
    inspect.StructType: "a table",
}


def broken_rule(
    shape: type[msgspec.Struct], chosen: object, *, path: str, message: str, of_key: bool
) -> tuple[str, str]:
    """Returns the rule that a member breaks, with its value where that is short, and its pointer.

    Args:
        path: The place of the fault in them, as msgspec names it, without `$`.
    """
    kind, value, steps = _at(_schema(shape), chosen, path)
    pointer = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)
    detail = _rule(kind, value, message=message, of_key=of_key, path=path)
    return detail, pointer


def _rule(kind: inspect.Type, value: Any, *, message: str, of_key: bool, path: str) -> str:  # noqa: ANN401
    if match := _MISSING.fullmatch(message):
        return f"{match[1]} is missing"
    if (match := _UNKNOWN.fullmatch(message)) is not None:
        known = ", ".join(_members(kind))
        return f"there is no member `{match[1][:_LONGEST_SHOWN]}`; there are {known}"
    if not message.startswith(_BY_TYPE):
        return message
    if of_key and isinstance(kind := plain(kind), inspect.DictType):
        return f"a name must be {rule_of(kind.key_type)}"
    if value == "":
        return "must not be empty"
    # A webhook's address may be a secret.
    is_shown = isinstance(value, list) or not path.startswith(".webhooks[")
    return f"must be {rule_of(kind)}{_but_is(value) if is_shown else ''}"


def _members(kind: inspect.Type) -> list[str]:
    (shape,) = (each for each in alternatives(kind) if isinstance(each, inspect.StructType))
    return [field.encode_name for field in shape.fields]


@cache
def _schema(shape: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(shape)


def _at(kind: inspect.Type, value: Any, path: str) -> tuple[inspect.Type, Any, list[str]]:  # noqa: ANN401
    """Returns the type and the value of a place, and the names of the steps to it."""
    steps: list[str] = []
    for name, index in _STEP.findall(path):
        # A single alternative holds other types.
        (kind,) = (each for each in alternatives(kind) if isinstance(each, _HOLDERS))
        if isinstance(kind, inspect.StructType):
            kind = next(field.type for field in kind.fields if field.encode_name == name)
            value = value[name]
            steps.append(name)
        elif isinstance(kind, inspect.ListType):
            kind, value = kind.item_type, value[int(index)]
            steps.append(index)
        else:
            entry, value = _refused_entry(kind.value_type, value)
            kind = kind.value_type
            steps.append(entry)
    return kind, value, steps


_HOLDERS = (inspect.StructType, inspect.ListType, inspect.DictType)


def _refused_entry(kind: inspect.Type, entries: dict[str, object]) -> tuple[str, object]:
    """Returns the name and the entry of an object of structures that is refused."""
    if isinstance(kind, inspect.StructType):
        for name, entry in entries.items():
            try:
                msgspec.convert(entry, kind.cls)
            except msgspec.ValidationError:
                return name, entry
    return "*", None


def plain(kind: inspect.Type) -> inspect.Type:
    """Returns a type without the words and marks of its member."""
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """Returns the types that a member may be of."""
    kind = plain(kind)
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def rule_of(kind: inspect.Type) -> str:
    """Returns the rule of a type in words, as `a whole number from 1 to 60`."""
    if isinstance(kind, inspect.Metadata) and "rule" in (kind.extra or {}):
        return str((kind.extra or {})["rule"])
    # TOML has no null, and a form none that people type.
    shown = [each for each in alternatives(kind) if not isinstance(each, inspect.NoneType)]
    return " or ".join(_single_words(each) for each in shown)


def _single_words(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.LiteralType):
        *others, last = (json.dumps(value) for value in kind.values)
        return f"{', '.join(others)} or {last}" if others else last
    noun = _NOUNS[type(kind)]
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return " ".join([noun, *_bounds(kind)])
    if isinstance(kind, inspect.StrType):
        return noun + _length(kind.min_length, kind.max_length, "characters")
    if isinstance(kind, inspect.ListType):
        return noun + _length(kind.min_length, kind.max_length, "entries")
    return noun


def _bounds(kind: inspect.IntType | inspect.FloatType) -> Iterator[str]:
    if kind.ge is not None and kind.le is not None:
        yield f"from {_number(kind.ge)} to {_number(kind.le)}"
        return
    below = [("of at least", kind.ge), ("above", kind.gt)]
    above = [("of at most", kind.le), ("below", kind.lt)]
    bounds = [f"{word} {_number(end)}" for word, end in (*below, *above) if end is not None]
    if bounds:
        yield " and ".join(bounds)


def _length(least: int | None, most: int | None, noun: str) -> str:
    if least is None:
        return "" if most is None else f" of at most {most} {noun}"
    return f" of {least} {'or more' if most is None else f'to {most}'} {noun}"


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _but_is(value: object) -> str:
    """Returns the refused value; of a list how many entries, of a long text nothing."""
    if isinstance(value, list):
        return f", not of {len(value)}"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f", not {text}" if len(text) <= _LONGEST_SHOWN else ""
