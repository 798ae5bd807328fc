"""Published evidence, compared with the evidence that the log gives: its facts, not its words.

A verdict stays as it was published, while releases word evidence anew and add members to it. A
document of an earlier release still says what the log says where every fact in it does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

# Sentences that are made of the document's other members.
_WORDS = frozenset({"sentence", "headline", "reason", "advice"})


def facts(served: Mapping[str, Any], computed: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns both documents without words, the computed one in the members of the served one.

    They are equal where the served document holds.

    Args:
        served: The evidence document as it was published.
        computed: The same evidence as this release writes it.
    """
    return _without_words(served), _without_words(_shared(served, computed))


def holds(served: Mapping[str, Any] | None, computed: Mapping[str, Any] | None) -> bool:
    """Tells whether every fact of a served document is that of the computed one."""
    if served is None or computed is None:
        return served is computed
    left, right = facts(served, computed)
    return left == right


def _shared(served: object, computed: object) -> Any:  # noqa: ANN401 - JSON
    if isinstance(served, Mapping) and isinstance(computed, Mapping):
        return {
            name: _shared(value, computed[name])
            for name, value in served.items()
            if name in computed
        }
    if isinstance(served, Sequence) and isinstance(computed, Sequence):
        if isinstance(served, str) or isinstance(computed, str) or len(served) != len(computed):
            return computed
        return [_shared(*pair) for pair in zip(served, computed, strict=True)]
    return computed


def _without_words(document: object) -> Any:  # noqa: ANN401 - JSON
    if isinstance(document, Mapping):
        return {
            name: _without_words(value) for name, value in document.items() if name not in _WORDS
        }
    return document
