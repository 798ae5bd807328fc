"""Compares two versions of a tool that an agent calls: a run is a unit, and what it wrote is run.

The tool writes a function that sorts version numbers; a check runs it. Yours calls a model.
It needs Python alone:
    SERVICE_API_URL=… WRITE_KEY=wk_… COMMIT=… python runs.py 500
"""

import json
import os
import random
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# The flag under test; its values are the versions of the tool.
FLAG = "sorter"
TOOLS: Mapping[str, str] = {
    "v1": "def ordered(names):\n    return sorted(names)\n",
    "v2": (
        "def ordered(names):\n"
        "    return sorted(names, key=lambda name: [int(part) for part in name.split('.')])\n"
    ),
}
# As a model now and then does not answer, whatever the version.
UNANSWERED = 0.03
_BATCH = 500


@dataclass(frozen=True, kw_only=True)
class Service:
    """The endpoints that a harness of runs needs."""

    url: str
    write_key: str

    def version(self, run: str) -> str:
        """Returns the version of the tool that a run gets; control's until the test has begun."""
        context = {"targetingKey": run, "run": run}
        return self._post(f"/ofrep/v1/evaluate/flags/{FLAG}", {"context": context})["value"]

    def send(self, events: Iterable[Mapping[str, Any]]) -> int:
        """Sends events, and returns how many the service took."""
        left, taken = list(events), 0
        while left:
            taken += self._post("/v1/events", {"events": left[:_BATCH]})["accepted"]
            left = left[_BATCH:]
        return taken

    def _post(self, path: str, body: object) -> Any:  # noqa: ANN401 - of JSON
        request = urllib.request.Request(  # noqa: S310 - the address is yours
            self.url + path,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "X-Service-Project-Key": self.write_key},
        )
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return json.load(response)


def outcomes(run: str, version: str) -> Iterator[tuple[str, float | None]]:
    """Yields the events of a run: what it cost, and whether what the tool wrote was merged.

    Of an agent they are tokens or dollars, whether its pull request was merged, and minutes.
    """
    chance = random.Random(run)  # noqa: S311 - no secret
    numbers = [[chance.randrange(12) for _ in range(2)] for _ in range(3)]
    names = [".".join(map(str, number)) for number in numbers]
    expected = [".".join(map(str, number)) for number in sorted(numbers)]
    begun = time.perf_counter()
    yield "cost", float(sum(map(len, names)))
    if chance.random() < UNANSWERED:
        yield "failed", None
        return
    space: dict[str, Any] = {}
    exec(TOOLS[version], space)  # noqa: S102 - the tool's own
    yield "merged" if space["ordered"](names) == expected else "reverted", None
    yield "minutes", (time.perf_counter() - begun) / 60


def events_of(run: str, version: str, *, commit: str) -> Iterator[dict[str, Any]]:
    """Yields a run's events: that it began with a version of the tool, then its outcomes."""
    # The run is the session as well; another session of the same run would count for it, too.
    event = {"session_id": run, "commit": commit, "properties": {"run": run}}
    yield {**event, "event": "run", "flags": {FLAG: version}}
    for name, value in outcomes(run, version):
        yield {**event, "event": name, **({} if value is None else {"value": value})}


def main(runs: int) -> None:
    """Makes some runs, and prints how many events of them were stored."""
    service = Service(url=os.environ["SERVICE_API_URL"], write_key=os.environ["WRITE_KEY"])
    commit, began = os.environ["COMMIT"], int(time.time())
    for number in range(runs):
        run = f"run-{began}-{number}"
        service.send(events_of(run, service.version(run), commit=commit))
    sys.stdout.write(f"{runs} runs\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
