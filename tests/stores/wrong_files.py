"""Wrong files: the ways in which a file of the lake may stop being the listed file."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def _cut(file: Path, _other: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def _fewer_rows(file: Path, _other: Path) -> None:
    rows = pq.read_table(file)
    pq.write_table(rows.slice(0, rows.num_rows // 2), file, compression="zstd")


def _other_rows(file: Path, _other: Path) -> None:
    rows = pq.read_table(file)
    names = pa.array(["another"] * rows.num_rows, pa.string())
    changed = rows.set_column(rows.schema.get_field_index("event"), "event", names)
    pq.write_table(changed, file, compression="zstd")


def _other_byte(file: Path, _other: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def _swapped(file: Path, other: Path) -> None:
    file.write_bytes(other.read_bytes())


def _missing(file: Path, _other: Path) -> None:
    file.unlink()


# What is done to a file, given the file of another hour.
HARMS: Mapping[str, Callable[[Path, Path], None]] = {
    "cut": _cut,
    "fewer rows": _fewer_rows,
    "other rows": _other_rows,
    "another byte": _other_byte,
    "swapped": _swapped,
    "missing": _missing,
}
