"""The server as it would be if events were not stored: everything else is done all the same."""

from datetime import datetime

from api.runtime import state
from api.server.process import serve
from storage.log.events import EventLines, EventWriter


class _Unstored(EventWriter):
    async def append(self, lines: EventLines) -> datetime:  # noqa: ARG002 - not stored
        return self.now()


if __name__ == "__main__":
    vars(state)["EventWriter"] = _Unstored
    serve(port=0)
