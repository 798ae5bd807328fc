"""Series: what the store holds of an experiment, in the engine's terms."""

from datetime import UTC, datetime

import numpy as np

from stats.policy import Policy
from stats.series import Series
from storage.evidence import ExperimentReading


def seconds(moment: datetime) -> int:
    """Returns whole seconds since the epoch, which the engine counts time in."""
    return int(moment.timestamp())


def moment(epoch_seconds: int) -> datetime:
    """Returns the UTC time of whole seconds since the epoch."""
    return datetime.fromtimestamp(epoch_seconds, tz=UTC)


def strata_codes(reading: ExperimentReading) -> dict[str, int]:
    """Returns the code of each stratum with a cell, in the order of their names."""
    return {name: code for code, name in enumerate(sorted({c.stratum for c in reading.cells}))}


def series_of(reading: ExperimentReading) -> Series:
    """Returns the series of an experiment."""
    codes = strata_codes(reading)
    cells = reading.cells
    return Series(
        policy=Policy.from_json(reading.policy),
        start=seconds(reading.starts_at),
        as_of=seconds(reading.as_of),
        closed_at=None if reading.closed_at is None else seconds(reading.closed_at),
        cuts=tuple(seconds(cut) for cut in reading.cuts),
        block=np.array([seconds(cell.block) for cell in cells], dtype=np.int64),
        stratum=np.array([codes[cell.stratum] for cell in cells], dtype=np.int64),
        n1=np.array([cell.n1 for cell in cells], dtype=np.int64),
        x1=np.array([cell.x1 for cell in cells], dtype=np.int64),
        n0=np.array([cell.n0 for cell in cells], dtype=np.int64),
        x0=np.array([cell.x0 for cell in cells], dtype=np.int64),
    )
