"""Absence: whether a value is known, unknown or none, by the words clients write for nothing."""

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
)
NOTHING_RULE = "must be a value, not what a client writes for none, such as `undefined` or `null`"
NULL_RULE = "must not be zeros alone, which is git's id of nothing"
_NAMELESS = frozenset(word.lower() for word in WORDS) | {""}
# People are called Null and Nil: of them the exact spellings alone are nobody.
NOBODY = frozenset(WORDS) - {"nil"}


def is_nothing(name: str) -> bool:
    """Tells whether an identifier or a name is a word for nothing, or blank."""
    return name.strip().lower() in _NAMELESS


def is_nobody(user_ref: str) -> bool:
    """Tells whether a reference to a user is unknown: a word for nothing as written, or blank."""
    return user_ref in NOBODY or not user_ref.strip()


def is_null(commit: str) -> bool:
    """Tells whether a commit's id is git's null id: zeros alone, however many."""
    return bool(commit) and not commit.strip("0")
