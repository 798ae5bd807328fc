"""The rows of an import: a file in chunks, and the events that each chunk's rows are."""

import gzip
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from cli.import_map import ImportMap, Values
from storage.events import RuntimeEvent
from storage.millionths import VALUE_RULE, value_in_millionths
from storage.secret import Pseudonyms

CHUNK_ROWS = 50_000


class RowError(ValueError):
    """A row that is no event; the message names the row and the member."""


@contextmanager
def opened(path: Path) -> Generator[IO[bytes]]:
    """Opens a file, unpacking gzip where its first bytes tell it."""
    with path.open("rb") as stream:
        if stream.peek(2)[:2] == b"\x1f\x8b":
            with gzip.open(stream) as unpacked:
                yield unpacked  # pyright: ignore[reportReturnType] - it reads like a file
        else:
            yield stream


def chunks(path: Path, stream: IO[bytes]) -> Iterator[pd.DataFrame]:
    """Yields a file's rows as text and numbers; its format is told by its name."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        for batch in pq.ParquetFile(stream).iter_batches(batch_size=CHUNK_ROWS):
            yield batch.to_pandas()
    elif name.endswith((".ndjson", ".jsonl", ".json")):
        yield from pd.read_json(stream, lines=True, chunksize=CHUNK_ROWS, dtype=False)
    else:
        yield from pd.read_csv(stream, chunksize=CHUNK_ROWS, dtype=str, keep_default_na=False)


def _fulfils(frame: pd.DataFrame, column: str, values: Values) -> "pd.Series[bool]":
    if column not in frame:
        raise RowError(f"where names column {column!r}, which the file does not have")
    if isinstance(values, str) and values.startswith("@"):
        return frame[column].astype(str) == frame[values[1:]].astype(str)
    wanted = values if isinstance(values, list) else [values]
    return frame[column].astype(str).isin([str(value) for value in wanted])


def _millionths(cell: str) -> int:
    try:
        return value_in_millionths(float(cell))
    except ValueError:
        raise RowError(f"a row's value is {cell!r}: {VALUE_RULE}") from None


class RowReader:
    """Turns a file's rows into the events of one project, by a map.

    Args:
        layout: The map.
        project_id: The project.
        pseudonyms: What stands for a `user_ref`.
        rows: How many rows the file has, where times must be spread over them.
    """

    def __init__(
        self, layout: ImportMap, *, project_id: int, pseudonyms: Pseudonyms, rows: int
    ) -> None:
        self._map = layout
        self._project_id = project_id
        self._pseudonyms = pseudonyms
        self._zone = ZoneInfo(layout.times.zone)
        self._row = 0
        self._spread: np.ndarray[Any, np.dtype[np.float64]] | None = None
        if layout.times.spread_days is not None:
            # All times are drawn at once: the file's order says nothing of time.
            draws = np.random.default_rng(layout.times.seed)
            self._spread = draws.uniform(0, layout.times.spread_days * 86_400, rows)

    def events(self, frame: pd.DataFrame) -> list[RuntimeEvent]:
        """Returns the events of a chunk's rows that the map takes."""
        frame = frame.reset_index(drop=True)
        numbers = pd.RangeIndex(self._row, self._row + len(frame))
        self._row += len(frame)
        frame = frame.assign(_number=numbers, _time=self._times(frame, numbers))
        if self._map.where:
            taken = pd.Series(data=False, index=frame.index)
            for alternative in self._map.where:
                fulfilled = pd.Series(data=True, index=frame.index)
                for column, values in alternative.items():
                    fulfilled &= _fulfils(frame, column, values)
                taken |= fulfilled
            frame = frame[taken]
        return self._unit_rows(frame) if self._map.layout == "unit" else self._event_rows(frame)

    def _times(self, frame: pd.DataFrame, numbers: pd.RangeIndex) -> "pd.Series[pd.Timestamp]":
        times = self._map.times
        if self._spread is not None and times.start is not None:
            start = pd.Timestamp(times.start)
            offset = pd.to_timedelta(self._spread[numbers.to_numpy()], unit="s")
            found = pd.Series(start + offset, index=frame.index)
        else:
            found = pd.to_datetime(frame[times.column], format="ISO8601")
        if found.dt.tz is None:
            found = found.dt.tz_localize(self._zone)
        return found.dt.tz_convert("UTC").dt.floor("us")

    def _units(self, frame: pd.DataFrame) -> list[str]:
        column = "_number" if self._map.unit is None else self._map.unit
        return frame[column].astype(str).tolist()

    def _unit_rows(self, frame: pd.DataFrame) -> list[RuntimeEvent]:
        layout = self._map
        frame = frame[frame[layout.arm].astype(str).isin(layout.commits)]
        exposure = layout.constants.get("event", "page_view")
        columns = {
            event: pd.to_numeric(frame[column]).to_numpy() != 0
            for column, event in layout.metrics.items()
        }
        commits = frame[layout.arm].astype(str).map(layout.commits).tolist()
        times = frame["_time"].dt.to_pydatetime().tolist()
        events: list[RuntimeEvent] = []
        for row, (unit, commit, at) in enumerate(
            zip(self._units(frame), commits, times, strict=True)
        ):
            sent = [exposure, *(event for event, hit in columns.items() if hit[row])]
            events.extend(
                RuntimeEvent(
                    project_id=self._project_id,
                    environment=layout.constants.get("environment", "production"),
                    event=event,
                    session_id=unit,
                    occurred_at=at,
                    commit_sha=commit,
                    route=layout.constants.get("route"),
                    trusted=True,
                )
                for event in sent
            )
        return events

    def _event_rows(self, frame: pd.DataFrame) -> list[RuntimeEvent]:
        members = {
            member: frame[column].astype(str).tolist()
            for member, column in self._map.columns.items()
        }
        units = members.get("session_id") or self._units(frame)
        times = frame["_time"].dt.to_pydatetime().tolist()
        return [
            self._event(unit, at, {name: values[row] for name, values in members.items()})
            for row, (unit, at) in enumerate(zip(units, times, strict=True))
        ]

    def _event(self, unit: str, at: Any, row: dict[str, str]) -> RuntimeEvent:  # noqa: ANN401 - pandas
        members = {**self._map.constants, **{name: text for name, text in row.items() if text}}
        user_ref, value = members.get("user_ref"), members.get("value")
        if "event" not in members:
            raise RowError("a row names no event: add it to columns or constants")
        return RuntimeEvent(
            project_id=self._project_id,
            environment=members.get("environment", "production"),
            event=members["event"],
            session_id=unit,
            occurred_at=at,
            commit_sha=members.get("commit"),
            route=members.get("route"),
            pseudonym=self._pseudonyms.of(self._project_id, user_ref) if user_ref else None,
            trusted=True,
            event_id=members.get("event_id"),
            value=_millionths(value) if value is not None else None,
        )
