"""Figures: numbers, times and names as pages write them."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from urllib.parse import urlencode

from markupsafe import Markup

_MINUS = "\N{MINUS SIGN}"
_NARROW = "\N{NARROW NO-BREAK SPACE}"
_HYPHEN_BEFORE_DIGIT = re.compile(r"(?<![\w.])-(?=\d)")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


def signs(text: str) -> str:
    """Returns a text with the signs of print: minus, apostrophe, a narrow space before percent."""
    printed = _APOSTROPHE.sub("\N{RIGHT SINGLE QUOTATION MARK}", text)
    return _HYPHEN_BEFORE_DIGIT.sub(_MINUS, printed).replace(" %", f"{_NARROW}%")


def count(value: float) -> str:
    """Returns a count with its thousands apart."""
    return f"{value:,.0f}"


def percent(share: float, digits: int = 0) -> str:
    """Returns a share in percent."""
    return signs(f"{100 * share:.{digits}f} %")


def money(dollars: float) -> str:
    """Returns an amount of dollars; cents only of small ones."""
    size = abs(dollars)
    written = f"{size:,.2f}" if size < 10 else f"{size:,.0f}"
    return f"{_MINUS if dollars < 0 else ''}${written}"


def short_commit(sha: str) -> str:
    """Returns a commit as people quote it."""
    return sha[:10]


def moment_of(time: str | datetime) -> datetime:
    """Returns a time of a document or of the store, in UTC."""
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    return moment.astimezone(UTC)


def time_text(time: str | datetime) -> str:
    """Returns a time for reading."""
    return f"{moment_of(time):%d %b %Y, %H:%M} UTC"


def day_text(day: str) -> str:
    """Returns a day for reading."""
    return f"{date.fromisoformat(day):%d %b %Y}"


def timed(text: str) -> Markup:
    """Returns a sentence whose times a script can show in the reader's zone, as all others."""
    parts = _MOMENT.split(text)
    element = Markup('<time datetime="{}">{}</time>')
    shown = [Markup.escape(part) for part in parts]
    for place in range(1, len(parts), 3):
        at = f"{parts[place]}T{parts[place + 1]}:00Z"
        shown[place], shown[place + 1] = element.format(stamp(at), time_text(at)), Markup()
    return Markup().join(shown)


def stamp(time: str | datetime) -> str:
    """Returns a time for programs."""
    return f"{moment_of(time):%Y-%m-%dT%H:%M:%SZ}"


def first_line(message: str | None) -> str:
    """Returns the first line of a commit's message; empty if there is none."""
    lines = (message or "").strip().splitlines()
    return lines[0].strip() if lines else ""


def web_address(text: str | None) -> str | None:
    """Returns an address that a page may lead to; None of anything that is no web address."""
    return text if text and text.startswith(("https://", "http://")) else None


def query_of(members: Mapping[str, str]) -> str:
    """Returns a query string of the members that have a value, else nothing."""
    query = urlencode({name: value for name, value in members.items() if value})
    return f"?{query}" if query else ""
