"""Absence: whether a value is known, unknown or none, by the words clients write for nothing."""

import re

ZERO_UUID = "00000000-0000-0000-0000-000000000000"
# What JavaScript, Python, Ruby and Go make of a value that lacks, and of a client's slip; in an
# identifier or a name their case and the spaces around them tell nothing. `0` is none of them: it
# is an id in files.
WORDS = (
    "undefined",
    "null",
    "None",
    "nil",
    "NaN",
    "[object Object]",
    ZERO_UUID,
    ZERO_UUID.replace("-", ""),
    # As Objective-C, C and Go print nothing, pandas, Java, spreadsheets and Google Analytics write
    # it, and JSON quotes it twice; what JavaScript prints of a value that was not waited for.
    *("(null)", "(nil)", "(none)", "(not set)", "<null>", "<nil>", "<none>", "<NA>", "NaT"),
    *("%!s(<nil>)", "<no value>", "Optional(nil)", "#N/A", "Invalid Date", "{}", "[]"),
    *('"undefined"', '"null"', '""', "'undefined'", "'null'", "''", "\\N", "Optional.empty"),
    *("[object Undefined]", "[object Null]", "[object Promise]", "[object Function]"),
    # Zeros of a UUID with its marks, of a ULID, an ObjectId and a span.
    *(f"{{{ZERO_UUID}}}", f"urn:uuid:{ZERO_UUID}", "0" * 26, "0" * 24, "0" * 16),
)
# Placeholders that were not filled in: '${user.id}' of JavaScript, {{ID}}, $ID and %ID% of shells.
_UNFILLED = re.compile(r"\$\{.*\}|\{\{.*\}\}|\$\(.*\)|\$[A-Z][A-Z0-9_]*|%[A-Z][A-Z0-9_]*%|<%.*%>")
NOTHING_RULE = "must be a value, not what a client writes for none, such as `undefined` or `null`"
NULL_RULE = "must be a commit's id, not what git writes for nothing, such as zeros alone"
# Digests of nothing: git's empty tree, which scripts name as the base of a first commit, its empty
# file, and those of no input at all.
EMPTY = (
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
)
# A commit is named by seven digits at least.
_HEADS = frozenset(null[:7] for null in EMPTY)
_NAMELESS = frozenset(word.lower() for word in WORDS) | {""}
# Invisible blanks, beside those that `strip` knows: editors and spreadsheets leave them.
_UNSEEN = "\u200b\u200c\u200d\u2060\ufeff"
# People are called Null and Nil: of them the exact spellings alone are nobody.
NOBODY = frozenset(WORDS) - {"nil"}
_LONGEST_UNIT = 256
# Values by which providers report a flag of units that are not in its experiment, in lower case.
# Statements hold them, so none needs an escape on any of three engines.
NOT_SERVED = frozenset(word for word in _NAMELESS if not {*"'\"\\%"} & set(word)) | {"false"}


def is_nothing(name: str) -> bool:
    """Tells whether an identifier or a name is a word for nothing, or blank."""
    plain = name.strip().strip(_UNSEEN).strip()
    return plain.lower() in _NAMELESS or _UNFILLED.fullmatch(plain) is not None


def is_nobody(user_ref: str) -> bool:
    """Tells whether a reference to a user is unknown: a word for nothing as written, or blank."""
    plain = user_ref.strip().strip(_UNSEEN)
    return not plain or user_ref in NOBODY or _UNFILLED.fullmatch(plain) is not None


def unit_name(value: object) -> str | None:
    """Returns the name of a unit as text; None where a value names none.

    Raises:
        ValueError: It can name none; the message is the rule.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    # A script sends false for `account && account.id` where it has no account.
    text = "" if value is None or isinstance(value, bool) else value
    text = str(text) if isinstance(text, int) else text
    if not isinstance(text, str) or len(text) > _LONGEST_UNIT:
        raise ValueError(f"must be a whole number, or a text of at most {_LONGEST_UNIT} characters")
    return None if is_nobody(text) else text


def is_null(commit: str) -> bool:
    """Tells whether a commit's id is git's id of nothing: zeros alone, or of emptiness."""
    head = commit[:7].lower()
    if head in _HEADS:
        return any(null.startswith(commit.lower()) for null in EMPTY)
    return bool(commit) and not commit.strip("0")
