"""An axis: where a value stands in a drawing, and the round values to name on it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_TIMES = (
    *(number * _MINUTE for number in (1, 5, 15, 30)),
    *(number * _HOUR for number in (1, 2, 3, 6, 12)),
    *(number * _DAY for number in (1, 2, 4, 7, 14, 28)),
)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A straight scale from values to places."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Returns the place of a value, also of a value beyond the ends."""
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)


def round_step(least: float) -> float:
    """Returns the smallest round number that is not below a positive number."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * number for number in (1, 2, 2.5, 5, 10) if power * number >= least)


def round_steps(low: float, high: float, *, limit: int) -> list[float]:
    """Returns multiples of a round number between two values, about as many as asked for."""
    step = round_step((high - low) / limit)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def time_steps(low: float, high: float, *, limit: int) -> Iterator[tuple[float, str]]:
    """Yields round times between two, in seconds since the epoch, and their names in UTC."""
    step = next((time for time in _TIMES if (high - low) / time <= limit), _TIMES[-1])
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        moment = datetime.fromtimestamp(number * step, tz=UTC)
        yield number * step, f"{moment:%d %b}" if number * step % _DAY == 0 else f"{moment:%H:%M}"
