"""The code's English stays as plain as it is, and the words of its names have a meaning."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.language import figures, words

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
# Words that every engineer of the field knows.
KNOWN = (ROOT / "tests" / "words.txt").read_text().split()
# The design calls for fewer than 5 of the first two; lower them when the code gets better.
LIMITS = {
    "told, one, found in 10,000 identifiers": 1.0,
    "'what is ...' in 10,000 words of docstring": 2.5,
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


@pytest.mark.parametrize("figure", LIMITS)
def test_names_and_docstrings_stay_as_plain_as_they_are(figure: str) -> None:
    assert figures()[figure] <= LIMITS[figure], "python -m tests.language prints the figures"


def test_each_word_that_modules_and_classes_are_named_by_has_a_meaning() -> None:
    meanings = explained() | set(KNOWN)
    strange = {word: name for word, name in words().items() if not forms(word) & meanings}
    assert strange == {}, "add a line to docs/glossary.md, or a word to tests/words.txt"


def test_the_known_words_are_used_and_not_explained_as_well() -> None:
    assert sorted(set(KNOWN)) == KNOWN
    used = {form for word in words() for form in forms(word)}
    assert set(KNOWN) <= used
    assert not set(KNOWN) & explained()
