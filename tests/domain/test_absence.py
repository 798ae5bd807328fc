"""A value that says nothing is known by its own rule for each kind of value."""

import pytest

from domain.absence import EMPTY, WORDS, is_nobody, is_nothing, is_null

# Templates that nobody filled in.
UNFILLED = ["${user.id}", "{{User ID}}", "$SESSION_ID", "%USER%", "$(uuidgen)", "<%= user.id %>"]


@pytest.mark.parametrize("word", [*WORDS, "", "  ", "\t\n"])
def test_a_word_for_nothing_names_nothing_in_any_case_and_between_spaces(word) -> None:
    assert all(is_nothing(form) for form in (word, word.upper(), word.lower(), f"\t{word} "))


@pytest.mark.parametrize("template", UNFILLED)
def test_a_template_that_nobody_filled_in_names_nothing_and_nobody(template) -> None:
    assert is_nothing(f" {template}\n")
    assert is_nobody(template)


@pytest.mark.parametrize(
    "name", ["0", "00", "nothing", "null-1", "nan.ru", "no", "false", "-", "N/A", "$pageview"]
)
def test_an_id_of_few_characters_is_a_name(name) -> None:
    assert not is_nothing(name)
    assert not is_nobody(name)


def test_people_have_names_that_look_like_nothing() -> None:
    nobody = [word for word in WORDS if word != "nil"]
    assert all(map(is_nobody, [*nobody, "", " ", " \t"]))
    assert not any(map(is_nobody, ["Null", "nil", "Nil", "NONE", "nan", " null"]))


@pytest.mark.parametrize(
    ("commit", "null"),
    [
        *[("0" * 7, True), ("0" * 40, True), ("0" * 64, True), ("0" * 39 + "1", False)],
        *[(form, True) for empty in EMPTY for form in (empty, empty[:7], empty[:12].upper())],
        *[("4b825dc7", False), ("4b825d", False), ("", False)],
    ],
)
def test_gits_null_id_is_of_zeros_alone_or_of_what_is_empty(commit, null) -> None:
    assert is_null(commit) is null
