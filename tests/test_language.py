"""The code's English stays as plain as it is, and the words of its names have a meaning."""

import re
from functools import cache
from pathlib import Path

from tests.language import figures, words

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
# Words that every engineer of the field knows.
_KNOWN = """
absence account actions adapters address advice agents alert aliasing amount answer api app
application are asset axis backlog batch batching because body boundary bucket caller chain
changed check checklist child children clause cli client close closed cluster column command
compared comparison component computed conflict context contract copying count counted created
cron crossing currency cursors daemon dagster dashboard data dataclass day db dbt decision
default definitions delivery deploy deployed derived design dialect diff difference different
digest dir doctor document documentation domain doubtful draft drafted drawing drop dropped duck
duckdb due duplicate durability duration editor empty encoding ended engine entry env envelope
environments epoch erasure error estimate evaluate evaluation event evidence exchange exit
experiment explain explanation fact failed failures fault field figures file filter flag folder
forget forgotten form forwarded found frozen full future gauges gone group guard harm headline
health history holder home host hour housekeeping http import increment inflation input interval
invalid invariants java job json judged keep key kind lacking lane last lazy levels limit links
list listed listing lives main many mark markup matcher mcp mean measure measurement member
memory meters metric migrate missing named needed needs no not now numbers once open operations
operator options orchestration origin outbound outcome own page pairs parquet partitions passing
patch payload pending person picture plain plan planned planning plot poll polling pool
population posted posterior postgres probe problem programs progress project proxied proxies
publication published pull python quantile query question quicker ramp random range rate ratio
raw read reader rebuild rebuilt receipt receiver recent record recorded redaction refusal
refused register registered registration regression rejected relation relations release
remaining remote removal reply report request requirement resource resources result retention
returning revenue reward rewriting role round row rule run runtime sample sampling scene
schedules schema scope script sealer secret seen selection sending sent sequential series served
server service sessions settings setup shape share shortfall shown sign signature silence
snapshot source stage start state statement stats status step stop storage store stored storing
stratification stream strict subject sums supervisor table target tenants tick timeline too tool
tools totals trace traffic treatment trusted unanswered unavailable unhandled unmatched
unreadable unsealed unused users verification verify version view visit visitor warnings watched
weak web webhook week whole wire withdraw withdrawal withdrawn wording work workers write writer
written yes
"""
KNOWN = _KNOWN.split()
# The design calls for fewer than 5 of each but the last; lower them when the code gets better.
LIMITS = {
    "told, one, found in 10,000 identifiers": 1.3,
    "... in 10,000 words of comment": 3.0,
    "... in 10,000 words of docstring": 3.0,
    "... in 10,000 words of string": 5.0,
    "... in 10,000 identifiers of the tests": 1.0,
    "... in 10,000 words of the tests' comments": 3.0,
    "... in 10,000 words of the tests' docstrings": 4.5,
    "... in 10,000 words of the pages": 2.6,
    "'what is ...' in 10,000 words of docstring": 3.4,
    "classes named Answer": 1.0,
}


@cache
def explained() -> frozenset[str]:
    """The words of the glossary: of its headings, and of its table of the code."""
    terms = re.findall(r"^### (.+)$|^\| ([^|]+) \|", GLOSSARY, re.MULTILINE)
    return frozenset(re.findall(r"[a-z]+", " ".join(map(" ".join, terms)).lower()))


def forms(word: str) -> set[str]:
    """A word, and what its singular may be."""
    ends = {"": "", "s": "", "es": "", "ies": "y"}
    return {
        word.removesuffix(end) + singular for end, singular in ends.items() if word.endswith(end)
    }


def test_names_and_docstrings_stay_as_plain_as_they_are() -> None:
    above = {name: figure for name, figure in figures().items() if figure > LIMITS[name]}
    assert above == {}


def test_each_word_that_modules_and_classes_are_named_by_has_a_meaning() -> None:
    meanings = explained() | set(KNOWN)
    strange = {word: name for word, name in words().items() if not forms(word) & meanings}
    assert strange == {}, "add a line to docs/glossary.md, or a word to KNOWN"


def test_the_known_words_are_used_and_not_explained_as_well() -> None:
    assert sorted(set(KNOWN)) == KNOWN
    used = {form for word in words() for form in forms(word)}
    assert set(KNOWN) <= used
    assert not set(KNOWN) & explained()
