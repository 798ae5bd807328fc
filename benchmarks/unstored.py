"""The server as it would be if events were not stored: everything else is done all the same."""

from collections.abc import Sequence
from datetime import datetime

from api.runtime import state
from api.server.process import serve
from storage.log.events import EventWriter, RuntimeEvent


class _Unstored(EventWriter):
    async def append(self, events: Sequence[RuntimeEvent]) -> datetime:  # noqa: ARG002
        return self.now()


if __name__ == "__main__":
    vars(state)["EventWriter"] = _Unstored
    serve(port=0)
