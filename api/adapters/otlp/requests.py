"""Requests of a server: merges the spans that two instrumentations made of the same request."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from api.adapters.otlp.record import Span, path_of

SPLIT = "whose enclosing span came in no export with them: each counts as a request of its own"


def requests_of(spans: Iterable[Span], notes: Counter[str]) -> list[Span]:
    """Returns the server spans of an export, each request once.

    A framework's own telemetry and an instrumentation beside it make two spans of a request, in a
    single process, nested in time: the inner has a local parent (FastAPI), or the remote parent
    of the outer since its instrumentation read the headers again (Hono). The outer keeps its
    duration, and takes the route from the inner if it has none itself.

    Args:
        spans: In the order of the export; spans of other kinds are passed over.
    """
    traces: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in spans:
        if span.is_server:
            traces[span.process, span.identity[:32]].append(span)
    requests: list[Span] = []
    for trace, members in traces.items():
        requests += _merged(members, notes) if trace[1] and len(members) > 1 else members
        if len(members) == 1 and members[0].is_nested:
            notes[SPLIT] += 1
    return requests


def _merged(members: Sequence[Span], notes: Counter[str]) -> list[Span]:
    kept: list[Span] = []
    for span in sorted(members, key=lambda member: (member.started, -member.ended)):
        outer = next((other for other in reversed(kept) if _is_same(other, span)), None)
        if outer is None:
            kept.append(span)
            notes[SPLIT] += span.is_nested
        else:
            shared = {**span.attributes, **outer.attributes}
            kept[kept.index(outer)] = replace(
                outer, failed=outer.failed or span.failed, attributes=shared
            )
    return kept


def _is_same(outer: Span, inner: Span) -> bool:
    """Tells whether two spans are of a single request, unlike parallel requests of a page."""
    if outer.ended < inner.ended:
        return False
    paths = {path for span in (outer, inner) if (path := path_of(span.attributes))}
    return inner.is_nested or (outer.parent == inner.parent != "" and len(paths) < 2)
