"""The OpenAPI document, and the table of settings, made of the service's own types.

`python -m tests.reference` writes the table.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from api.app import create_app
from api.runtime.settings import ApiSettings
from storage.tenants.setting_rule import plain, rule_of
from storage.tenants.settings import RateLimits, Settings

DOCS = Path(__file__).parents[1] / "docs"
SETTINGS_PAGE = DOCS / "operations" / "settings.md"
COMMAND = "python -m tests.reference"


def openapi() -> dict[str, Any]:
    settings = ApiSettings(database_url="postgresql://nowhere/none", secret=b"-")
    return create_app(settings).openapi()


def key_kinds() -> dict[str, str]:
    """Returns which kinds of keys an endpoint takes, as docs/api.md has them."""
    rows = re.findall(
        r"^\| ((?:`[A-Z]+ /[^|]+)) \| ([^|]+) \|", (DOCS / "api.md").read_text(), re.MULTILINE
    )
    return {name: kinds for cell, kinds in rows for name in re.findall(r"`([^`]+)`", cell)}


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


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(settings_page())
