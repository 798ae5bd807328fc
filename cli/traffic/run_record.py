"""The record of a run: requests sent to a service, their answers and their latencies."""

import math
import threading
from collections import Counter
from dataclasses import dataclass, fields
from typing import Any

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
NO_ANSWER = "none"
_FINEST_SECONDS = 1e-6
_STEP = math.log(1.01)


@dataclass(frozen=True, kw_only=True)
class Posted:
    """The service's counts of the events that it was sent; they can be added.

    Attributes:
        requests: Requests that were answered for good, each once, however often it was sent.
        events: Events of these requests.
        accepted: Events stored.
        duplicates: Revenue events known before.
        late: Events that came after everything they could count for had closed.
        rejected: Events that broke a rule.
        sampled_out: Events of units outside the project's sample.
    """

    requests: int = 0
    events: int = 0
    accepted: int = 0
    duplicates: int = 0
    late: int = 0
    rejected: int = 0
    sampled_out: int = 0

    @classmethod
    def of_receipt(cls, receipt: dict[str, Any], *, events: int) -> "Posted":
        """Returns the counts in the receipt of a request of `events` events."""
        return cls(
            requests=1,
            events=events,
            accepted=receipt["accepted"],
            duplicates=receipt.get("duplicates", 0),
            late=receipt.get("late", 0),
            rejected=len(receipt.get("rejected", ())),
            sampled_out=receipt.get("sampled_out", 0),
        )

    def __add__(self, other: "Posted") -> "Posted":
        names = [column.name for column in fields(self)]
        return Posted(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Durations:
    """How often each duration was seen, to a percent: an hour takes the room of a second."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._longest = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[int(math.log(max(seconds, _FINEST_SECONDS) / _FINEST_SECONDS) / _STEP)] += 1
        self._longest = max(self._longest, seconds)

    def quantile(self, share: float) -> float:
        """The least duration that `share` of all do not exceed, in seconds; NaN without any."""
        wanted, counted = share * self._counts.total(), 0
        for step, count in sorted(self._counts.items()):
            counted += count
            if counted >= wanted:
                return min(_FINEST_SECONDS * math.exp((step + 1) * _STEP), self._longest)
        return math.nan

    def milliseconds(self) -> dict[str, float] | None:
        """The quantiles and the longest, for people; None without any."""
        if not self._counts:
            return None
        quantiles = {name: self.quantile(share) for name, share in QUANTILES.items()}
        return {
            name: round(1e3 * at, 2) for name, at in {**quantiles, "max": self._longest}.items()
        }


class RunRecord:
    """The record of a run so far; many threads may write into it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: Counter[str] = Counter()
        self._retries = 0
        self._bytes = 0
        self._from_due, self._from_sent = Durations(), Durations()
        self.posted = Posted()
        self.sampling: dict[str, Any] | None = None

    def attempt(self, status: int | None, *, size: int, again: bool) -> None:
        """Enter that a body was sent.

        Args:
            status: The answer's; None where the connection broke first.
            size: Bytes of the body, as sent.
            again: Whether the same request was sent before.
        """
        with self._lock:
            self._statuses[NO_ANSWER if status is None else str(status)] += 1
            self._retries += again
            self._bytes += size

    def land(
        self,
        posted: Posted,
        *,
        since_due: float,
        since_sent: float,
        sampling: dict[str, Any] | None = None,
    ) -> None:
        """Enter a request that is answered for good.

        Args:
            posted: The counts in its receipt.
            since_due: Seconds from the time when it should have been sent first.
            since_sent: Seconds from the time when it was sent, this last time.
            sampling: The sample that the service takes events of, if it named a sample.
        """
        with self._lock:
            self.posted += posted
            self.sampling = sampling or self.sampling
            self._from_due.add(since_due)
            self._from_sent.add(since_sent)

    def document(self, seconds: float) -> dict[str, Any]:
        """All that was entered, with rates over `seconds`, as plain JSON values."""
        with self._lock:
            posted = self.posted
            return {
                **{column.name: getattr(posted, column.name) for column in fields(posted)},
                "seconds": round(seconds, 3),
                "requests_per_second": round(posted.requests / seconds, 1),
                "events_per_second": round(posted.events / seconds, 1),
                "statuses": dict(sorted(self._statuses.items())),
                "retries": self._retries,
                "bytes_sent": self._bytes,
                "milliseconds_from_due": self._from_due.milliseconds(),
                "milliseconds_from_sent": self._from_sent.milliseconds(),
            }


def rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns a record's document, as lines for people."""
    counts = ("accepted", "duplicates", "late", "rejected", "sampled_out")
    answers = ", ".join(f"{status}: {count:,}" for status, count in document["statuses"].items())
    return [
        ("seconds", f"{document['seconds']:.1f}"),
        *(
            (name, f"{document[name]:,} ({document[f'{name}_per_second']:,.0f} a second)")
            for name in ("requests", "events")
        ),
        *((name.replace("_", " "), f"{document[name]:,}") for name in counts),
        ("answers", answers or "-"),
        ("retries", f"{document['retries']:,}"),
        ("bytes sent", f"{document['bytes_sent']:,}"),
        ("answered, since due", _line(document["milliseconds_from_due"])),
        ("answered, since sent", _line(document["milliseconds_from_sent"])),
    ]


def _line(quantiles: dict[str, float] | None) -> str:
    if quantiles is None:
        return "-"
    return "  ".join(f"{name} {value:,.1f} ms" for name, value in quantiles.items())
