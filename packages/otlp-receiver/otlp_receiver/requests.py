"""Requests of a server: merges the spans that two instrumentations made of the same request."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from otlp_receiver.record import Span, path_of

# Spans of a framework's middleware between the two of a request, and requests at a time that a
# span is sought among: a sender chooses how many there are.
_MOST_BETWEEN, _MOST_AT_A_TIME = 16, 32


def requests_of(spans: Iterable[Span], notes: Counter[str]) -> list[Span]:
    """Returns the server spans of an export, each request once.

    A framework's own telemetry and an instrumentation beside it make two spans of a request, in a
    single process: the inner has a local parent, or the remote parent of the outer, since its
    instrumentation read the headers again (Hono), or as well as the outer none and so another trace
    (FastAPI below a mount). The outer keeps the longest duration, and takes the inner's route if it
    has none itself.

    Args:
        spans: In the order of the export; spans of other kinds are passed over.
        notes: Gets the number of spans whose outer span came in another export.
    """
    traces: dict[tuple[int, str], list[Span]] = defaultdict(list)
    above: dict[str, str] = {}
    for span in spans:
        if span.is_server:
            traces[span.process, span.identity[:32]].append(span)
        else:
            above[span.identity] = span.identity[:32] + span.parent
    requests: list[Span] = []
    roots: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for trace, members in traces.items():
        for span in _merged(members, above, notes) if trace[1] else members:
            path = "" if span.parent or not span.library else path_of(span.attributes)
            (roots[span.process, path] if path else requests).append(span)
    for members in roots.values():
        requests += _merged(members, above, notes)
    return requests


def _merged(
    members: Sequence[Span], above: Mapping[str, str], notes: Counter[str]
) -> Iterable[Span]:
    kept: dict[str, Span] = {}
    # The kept span of each span, by their ids.
    outers: dict[str, str] = {}
    for span in sorted(
        members, key=lambda member: (member.started, member.is_nested, -member.ended)
    ):
        parent = span.identity[:32] + span.parent
        for _ in range(_MOST_BETWEEN):
            parent = above.get(parent, parent)
        newest = islice(reversed(kept.items()), _MOST_AT_A_TIME)
        same = (each for each, outer in newest if _is_same(outer, span))
        outer = outers.get(parent) if span.is_nested else None
        outers[span.identity] = identity = outer or next(same, span.identity)
        notes["split_spans"] += span.is_nested and identity not in kept
        kept[identity] = _joined(kept[identity], span) if identity in kept else span
    return kept.values()


def _joined(outer: Span, inner: Span) -> Span:
    return replace(
        outer,
        failed=outer.failed or inner.failed,
        ended=max(outer.ended, outer.started + inner.ended - inner.started),
        library=f"{outer.library} {inner.library}",
        attributes={**inner.attributes, **outer.attributes},
    )


def _is_same(outer: Span, inner: Span) -> bool:
    """Tells whether two spans are of a single request, unlike parallel requests of a page.

    Node.js cuts the start of a span to milliseconds and measures its duration finer: an inner span
    may seem to end after its outer span.
    """
    if inner.started > outer.ended or inner.is_nested:
        return inner.started <= outer.ended
    if outer.parent != inner.parent or (inner.library and inner.library in outer.library.split()):
        return False
    return len({path for each in (outer, inner) if (path := path_of(each.attributes))}) < 2
