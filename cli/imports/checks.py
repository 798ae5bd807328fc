"""The checks of drafts: the reader of `POST /v1/events` itself reads them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from api.wire.event_batch import MOST_EVENTS, EventReader
from api.wire.problem import Fault
from cli.imports.faults import MapError, RowError, shown_cell
from cli.imports.layouts import Draft, Layout
from cli.imports.tables import Chunk
from storage.log.events import RuntimeEvent

# What the reader says of a member by its pattern, said for people.
_RULES: Mapping[str, str] = {
    "event": "an event's name has 1 to 128 characters",
    "session_id": "a session_id has 1 to 128 characters",
    "commit": "a commit has 7 to 64 hexadecimal digits, as for POST /v1/deploys",
    "route": "a route has 1 to 512 characters",
    "environment": "an environment has 1 to 64 characters",
    "user_ref": "a user_ref has 1 to 256 characters",
    "event_id": "an event_id has 1 to 64 characters",
    "flags": "flags are at most 50 names, each with a text or with true or false",
}
_SECRET = ("user_ref", "properties")


class EventChecks:
    """Holds the events of rows to the rules of the API.

    Args:
        reader: Of the API, for events of the past.
        layout: The source of the drafts; it names the column of a member.
    """

    def __init__(self, reader: EventReader, layout: Layout) -> None:
        self._reader = reader
        self._layout = layout

    def require_map(self) -> None:
        """Checks the members that the map itself sets, before any row is read.

        Raises:
            MapError: One breaks its rule.
        """
        layout = self._layout.map
        self._require_members("constants", layout.constants)
        for arm, commit in layout.commits.items():
            self._require_members(f"commits.{arm}", {"commit": commit})
        for column, outcome in layout.outcomes.items():
            self._require_members(f"metrics.{column}", {"event": outcome.event})

    def _require_members(self, place: str, members: Mapping[str, Any]) -> None:
        sample = {
            "event": "page_view",
            "session_id": "s",
            **members,
            "occurred_at": "2000-01-01T00:00:00Z",
        }
        if rejected := self._reader.batch(_body([sample])).rejected:
            member, rule = _rule(rejected[0].faults[0])
            raise MapError(f"{place}: {member} is {shown_cell(members.get(member))}: {rule}")

    def events(self, chunk: Chunk, drafts: Iterable[Draft]) -> Iterator[list[RuntimeEvent]]:
        """Yields the events of drafts, in batches.

        Raises:
            RowError: One breaks a rule; row, column and cell are named.
        """
        waiting = iter(drafts)
        while batch := list(islice(waiting, MOST_EVENTS)):
            read = self._reader.batch(_body([draft.members for draft in batch]))
            if read.rejected:
                first = read.rejected[0]
                raise self._fault(chunk, batch[first.index], first.faults[0])
            yield read.events

    def _fault(self, chunk: Chunk, draft: Draft, fault: Fault) -> RowError:
        member, rule = _rule(fault)
        place = chunk.place(draft.row)
        column = draft.columns.get(member) or self._layout.source(member)
        if column is not None:
            cell = chunk.cells(column)[draft.row]
            return RowError(
                place, f"{member}: {rule}", column=column, cell=cell, is_secret=member in _SECRET
            )
        said = f" {draft.members['occurred_at'].isoformat()}:" if member == "occurred_at" else ""
        return RowError(place, f"{member}:{said} {rule}")


def _body(documents: list[dict[str, Any]]) -> bytes:
    return msgspec.json.encode({"events": documents})


def _rule(fault: Fault) -> tuple[str, str]:
    """Returns the member of an event that a fault is of, and the rule that it breaks."""
    parts = fault.at.split("/")
    member = parts[3] if len(parts) > 3 else "event"
    return member, _RULES.get(
        member, fault.detail
    ) if fault.code == "invalid_member" else fault.detail
