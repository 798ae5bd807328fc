"""The calibration's page as lines: its sections replaced in turn, and its claims counted."""

import re
from collections.abc import Sequence

from benchmarks.calibration.sections.section import Section

PEERS = "Peers on the same streams"
_CLAIM = re.compile(
    r"\| (?P<name>.+?)(?: \(worst of (?P<count>\d+)\))? \| [\d.]+ of [\d,]+ \| [^|]+ \|"
    r" [≤≥] [\d.]+(?:, (?P<judgement>[^|]+))? \|"
)
_COUNTED = "Claims of the engine: "


def claims(lines: Sequence[str]) -> str:
    """How many rows make a claim, and which of them are outside it."""
    rows = [match for line in lines if (match := _CLAIM.fullmatch(line)) is not None]
    outside = [row["name"] for row in rows if row["judgement"] == "**OUTSIDE**"]
    unsure = sum(row["judgement"] == "within error" for row in rows)
    result = f"Outside are: {'; '.join(outside)}." if outside else "None is outside."
    return (
        f"{_COUNTED}{sum(int(row['count'] or 1) for row in rows)}. {result} Within error:"
        f" {unsure}. (The peers' claims are in their own table.)"
    )


def with_claims(page: Sequence[str]) -> list[str]:
    """The page with its claims counted anew."""
    counted = claims(page)
    return [counted if line.startswith(_COUNTED) else line for line in page]


def with_section(page: Sequence[str], section: Section) -> list[str]:
    """The page with a section replaced by its title; a new section comes before the peers.

    Raises:
        ValueError: The page has neither of the two.
    """
    heads = [number for number, line in enumerate(page) if line.startswith("## ")]
    titles = [page[number].removeprefix("## ") for number in heads]
    place = titles.index(section.title if section.title in titles else PEERS)
    begin = heads[place]
    end = [*heads, len(page)][place + 1] if section.title in titles else begin
    return [*page[:begin], *section.lines(), *page[end:]]
