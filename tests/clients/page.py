"""A page of the documentation, as its readers copy it: its blocks, and what its Python defines."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text()


def example(name: str) -> str:
    return (DOCS / "examples" / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def names_of(source: str) -> dict[str, Any]:
    """What a program in Python defines, by its name."""
    names: dict[str, Any] = {}
    exec(source, names)  # noqa: S102 - our own page
    return names
