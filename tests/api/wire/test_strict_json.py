"""The fast reader of JSON and the strict reader: two ways to the same answer, to the byte."""

import hashlib
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from api.wire.problem import Problem
from api.wire.strict_json import examined, strict_document
from storage.experiments.graphs import document_digest


def outcome(read: Any, raw: bytes) -> tuple[object, ...]:
    """What a reader says of a body: its document with every type, or its problem."""
    try:
        document = read(raw)
    except Problem as problem:
        return problem.code, [fault.document() for fault in problem.faults]
    return "document", repr(document)


def strictly(raw: bytes) -> object:
    """The strict reader's document, with which the fast reader must agree."""
    document, faults = examined(raw)
    if faults:
        raise Problem("invalid_request", "", faults=faults)
    return document


SPACE = st.sampled_from(["", "", "", " ", "\n\t", "\r\n ", "\x0c", "\ufeff"])
NAMES = st.sampled_from(
    ['"a"', '"a"', '"b"', '"\\u0061"', '"a:b"', '"\\u003a"', '":"', '"\\u0000"', '"\\ud800"', '""']
)
HOSTILE = """
    null true false 0 -0 1 -1 1.0 -0.0 1e5 1E+2 1e-400 1e400 -1e400 9223372036854775807
    9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551616
    01 1. .5 +1 - 1e NaN Infinity -Infinity nul tru "" ":" "a:b" "\\u003a" "\\u003A" "\\\\u003a"
    "\\u0000" "\\\\u0000" "\\ud83d\\ude00" "\\ud83d" "\\ude00" "\\ud83d\\ud83d" "\\ud83dx"
    "\\/" "\\x" "\\u12" "é" "😀" "\x7f" '' [ ] { } {: [, {"a":1,}
"""
SCALARS = st.one_of(
    st.sampled_from(HOSTILE.split()),
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=6).map(json.dumps),
    st.text(max_size=6).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(["9" * 30, "9" * 5000, "[" * 40 + "]" * 40, '{"a":' * 32 + "0" + "}" * 32]),
)


def _collections(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    element = st.tuples(SPACE, inner, SPACE).map("".join)
    member = st.tuples(SPACE, NAMES, SPACE, st.just(":"), element).map("".join)
    return st.one_of(
        st.lists(element, max_size=4).map(lambda some: f"[{','.join(some)}]"),
        st.lists(member, max_size=5).map(lambda some: f"{{{','.join(some)}}}"),
    )


TEXTS = st.recursive(SCALARS, _collections, max_leaves=12)
BODIES = st.one_of(
    TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")),
    # A byte more, or other, anywhere.
    st.tuples(TEXTS, st.integers(0, 200), st.binary(max_size=2)).map(
        lambda at: (raw := at[0].encode("utf-8", "surrogatepass"))[: at[1]] + at[2] + raw[at[1] :]
    ),
)


@given(raw=BODIES)
@example(raw=b'{"a":1,"a":2}')
# What a count alone would miss: a separator lost with the first member, another in disguise.
@example(raw=b'{"a":0,"a":"\\u003a"}')
@example(raw=b'{"a":0,"a":"\\u003A"}')
@example(raw=b'{"a":":","a":0}')
@example(raw=b'[{"x":{"a":1,"a":1}},":"]')
def test_the_fast_reader_says_what_the_strict_one_says(raw) -> None:
    assert outcome(strict_document, raw) == outcome(strictly, raw)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


@given(document=VALUES)
@example(document={"routes": [{"b": 1, "a": [float(n)]} for n in range(1203)], "é": -0.0})
@example(document={"a": {"b": {"c": {"d": {"e": {"g": 0, "f": []}}}}}})
def test_a_document_hashed_in_pieces_has_the_digest_of_the_whole(document) -> None:
    whole = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert document_digest(document) == hashlib.sha256(whole.encode()).digest()
