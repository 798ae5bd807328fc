"""The API reference, made of the OpenAPI document, and the table of settings, of their types.

Both are Markdown, written by `python -m tests.reference`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from api.app import create_app
from api.runtime.settings import ApiSettings
from api.wire.problem import CODES
from storage.tenants.setting_rule import plain, rule_of
from storage.tenants.settings import RateLimits, Settings

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "reference.md"
SETTINGS_PAGE = DOCS / "operations" / "settings.md"
COMMAND = "python -m tests.reference"
_OPENING = f"""\
# API reference

Every endpoint with its members, rules, examples and answers. Made from the service's own OpenAPI
document by `{COMMAND}`; a test holds it to the byte. In short: [api.md](api.md).
On a running service: `/docs`, and `/openapi.json` for programs.

Bodies are JSON in UTF-8. Times are RFC 3339 with an offset. A member is required where neither
"optional" nor a default stands beside it. Every answer names its request in `X-Request-Id`.
"""

Schema = Mapping[str, Any]


def openapi() -> dict[str, Any]:
    """Returns the OpenAPI document of the service."""
    settings = ApiSettings(database_url="postgresql://nowhere/none", secret=b"-")
    return create_app(settings).openapi()


def key_kinds() -> dict[str, str]:
    """Returns which kinds of keys an endpoint takes, as docs/api.md has them."""
    rows = re.findall(
        r"^\| ((?:`[A-Z]+ /[^|]+)) \| ([^|]+) \|", (DOCS / "api.md").read_text(), re.MULTILINE
    )
    return {name: kinds for cell, kinds in rows for name in re.findall(r"`([^`]+)`", cell)}


def reference() -> str:
    """Returns the page."""
    document, kinds = openapi(), key_kinds()
    operations = [
        (f"{method.upper()} {path}", each)
        for path, ways in document["paths"].items()
        for method, each in ways.items()
    ]
    common = _common_codes([each for _, each in operations])
    parts = [_OPENING, *_contents(operations), "\n## Problems of every endpoint\n"]
    parts += [*_codes(common), "\nWhen each comes: [problems](api.md#problems).\n"]
    for name, each in operations:
        parts += _operation(name, each, keys=kinds[name], common=common)
    parts += ["## Shapes\n"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += _shape(name, schema)
    return "\n".join(parts).rstrip() + "\n"


def settings_page() -> str:
    """Returns the page of settings, its table made of how they are declared."""
    opening, end = "<!-- settings -->\n", "<!-- end of settings -->"
    before, rest = SETTINGS_PAGE.read_text().split(opening)
    table = "\n".join(_settings_table())
    return f"{before}{opening}{table}\n{end}{rest.partition(end)[2]}"


def _settings_table() -> Iterator[str]:
    kind = inspect.type_info(Settings)
    assert isinstance(kind, inspect.StructType)
    yield "| setting | default | rule | meaning |"
    yield "| --- | --- | --- | --- |"
    for member in kind.fields:
        rule, declared = rule_of(member.type), plain(member.type)
        if isinstance(declared, inspect.ListType):
            rule = f"{rule}, each {rule_of(declared.item_type)}"
        words = getattr(member.type, "extra_json_schema", None) or {}
        default = msgspec.to_builtins(getattr(Settings(), member.name))
        values = default.values() if isinstance(default, dict) else default
        shown = values if isinstance(default, dict | list) else [default]
        defaults = ", ".join(f"`{json.dumps(each)}`" for each in shown)
        meaning = words.get("description", RateLimits.__doc__)
        yield f"| `{member.name}` | {defaults} | {rule} | {meaning} |"


def _contents(operations: Sequence[tuple[str, Any]]) -> Iterator[str]:
    yield "| endpoint | |"
    yield "| --- | --- |"
    for name, each in operations:
        anchor = re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-")
        yield f"| [`{name}`](#{anchor}) | {each['summary']} |"


def _common_codes(operations: Sequence[Any]) -> set[str]:
    result = [set(_problem_codes(each)) for each in operations]
    return set.intersection(*result)


def _problem_codes(operation: Any) -> Iterator[str]:
    for answer in operation["responses"].values():
        if "application/problem+json" in answer.get("content", {}):
            yield from re.findall(r"`(\w+)`:", answer["description"])


def _codes(codes: set[str]) -> Iterator[str]:
    by_status = groupby(sorted(codes, key=_status_and_code), key=lambda code: CODES[code][0])
    yield (
        "; ".join(
            f"{status} {', '.join(f'`{code}`' for code in each)}" for status, each in by_status
        )
        + "."
    )


def _status_and_code(code: str) -> tuple[int, str]:
    return CODES[code][0], code


def _operation(name: str, operation: Any, *, keys: str, common: set[str]) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{operation['summary']}. {operation['description']}\n".replace("?.", "?")
    yield f"Key: {keys}.\n"
    if parameters := operation.get("parameters"):
        yield from _table("parameter", (_parameter(each) for each in parameters))
    if body := operation.get("requestBody"):
        yield from _body(body)
    yield "Answers:\n"
    for status, answer in sorted(operation["responses"].items()):
        if (line := _answer(answer)) is not None:
            yield f"- {status}: {line}"
    own = set(_problem_codes(operation)) - common
    yield ""
    if own:
        yield "Problems of its own: " + "".join(_codes(own)) + "\n"


def _answer(answer: Any) -> str | None:
    shown = [
        f"{_type(content['schema'])}, `{media}`" if content.get("schema") else f"`{media}`"
        for media, content in answer.get("content", {}).items()
        if media != "application/problem+json"
    ]
    if not shown and "application/problem+json" in answer.get("content", {}):
        return None
    result = "" if answer["description"] == "Successful Response" else answer["description"]
    result = re.sub(r"\s*`\w+`: .*", "", result)
    return "; ".join(filter(None, [result.rstrip("."), *shown])) or "nothing"


def _body(body: Any) -> Iterator[str]:
    medias = list(body["content"])
    (content, *_) = body["content"].values()
    optional = "" if body["required"] else ", which may be left out"
    named = " or ".join(f"`{media}`" for media in medias)
    yield f"Body ({named}){optional}: {_type(content['schema'])}.\n"
    for title, example in content.get("examples", {}).items():
        yield f"{title[0].upper()}{title[1:]}:\n"
        yield f"```json\n{json.dumps(example['value'], indent=2, ensure_ascii=False)}\n```\n"


def _parameter(parameter: Any) -> tuple[str, str, str]:
    schema = parameter["schema"]
    place = f"in the {parameter['in']}" + ("" if parameter.get("required") else _default(schema))
    return (
        f"`{parameter['name']}`",
        f"{_type(schema)}, {place}",
        parameter.get("description") or _meaning(schema),
    )


def _shape(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name}\n"
    if answer := schema.get("description"):
        yield " ".join(answer.split()) + "\n"
    if schema.get("properties"):
        required = set(schema.get("required", ()))
        yield from _table(
            "member",
            (
                (
                    f"`{member}`",
                    _type(each) + ("" if member in required else _default(each)),
                    _meaning(each),
                )
                for member, each in schema["properties"].items()
            ),
        )
    elif "enum" in schema or "type" not in schema:
        yield f"{_type(schema)}\n"


def _table(heading: str, rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    yield f"| {heading} | type and rules | meaning |"
    yield "| --- | --- | --- |"
    for row in rows:
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
    yield ""


def _default(schema: Schema) -> str:
    """What stands where a member is left out."""
    if not schema.get("default"):
        return ", optional" if schema.get("default") is not False else ", default `false`"
    return f", default `{json.dumps(schema['default'])}`"


def _meaning(schema: Schema) -> str:
    """Returns what a member means; of what may be null it stands within."""
    answer = [schema, *schema.get("anyOf", ())]
    return next((each["description"] for each in answer if "description" in each), "")


def _type(schema: Schema) -> str:
    """Returns a schema in words."""
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(each) for each in schema[several])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "prefixItems" in schema:
        return "[" + ", ".join(_type(each) for each in schema["prefixItems"]) + "]"
    if schema.get("type") == "array":
        return f"list{_rules(schema)} of {_type(schema['items'])}"
    return _values(schema) or _plain(schema) + _rules(schema)


def _values(schema: Schema) -> str:
    """Returns the values, where there are but a few."""
    values = schema.get("enum", [])
    if set(values) == set(CODES):
        return "one of the [codes](api.md#problems)"
    return ", ".join(f"`{json.dumps(value)}`" for value in values)


def _plain(schema: Schema) -> str:
    kind = schema.get("type", "any JSON")
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"object of {_type(values)}" if isinstance(values, dict) and values else "object"
    if kind == "string":
        return "time" if schema.get("format") == "date-time" else "text"
    return str(kind)


_RULES = {
    "maxProperties": "at most {} members",
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
}


def _figure(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


def _sizes(schema: Schema, of: str, what: str) -> Iterator[str]:
    least, most = schema.get(f"min{of}") or 0, schema.get(f"max{of}")
    if least == most:
        yield f"{least} {what}"
    elif most is not None:
        yield f"{least} to {most:,} {what}" if least else f"at most {most:,} {what}"
    elif least:
        yield f"at least {least} {what}"


# A text without NUL: said of every text.
_ANY_TEXT = r"^[^\x00]*$"
# Which JSON Schema\'s own `$` forbids already.
_NO_LINE_FEED = r"(?!\n)"


def _rules(schema: Schema) -> str:
    rules = [*_sizes(schema, "Length", "characters"), *_sizes(schema, "Items", "items")]
    rules += [text.format(_figure(schema[rule])) for rule, text in _RULES.items() if rule in schema]
    if (pattern := schema.get("pattern")) and pattern != _ANY_TEXT:
        rules.append(f"as `{pattern.removesuffix(_NO_LINE_FEED)}`")
    return f" ({', '.join(rules)})" if rules else ""


if __name__ == "__main__":
    PAGE.write_text(reference())
    SETTINGS_PAGE.write_text(settings_page())
