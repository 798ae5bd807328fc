"""Strata: what a look costs of a single experiment that is offered thousands of strata.

Run by `make bench-experiments`. In an embedded PostgreSQL an experiment is registered, and 168
blocks of thin traffic are laid for it: in 10,000 strata of as many builds, and in the 4,096 strata
of twelve flags. Then its evidence is computed and published, in a process of its own whose memory
is measured.
"""

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import text

from benchmarks.experiments import SHAPES, Measured, lay, measured
from benchmarks.report import options, report
from benchmarks.store import MeasuredStore, measured_store

FLAGS = 12
# quality.md, 'Speed': seconds of CPU, and MiB.
LIMIT_CPU, LIMIT_MIB = 2.0, 500
# In how many blocks a stratum has units.
_EACH_IN = 20

# A hash draws which strata a block has.
_CELLS = text("""
INSERT INTO cells (experiment_id, metric, block, stratum, n1, x1, n0, x0)
SELECT c.experiment_id, c.metric, c.block, 's' || s.number, 1 + d.drawn % 3,
    (d.drawn / 7 % 9 = 0)::int, 1 + d.drawn / 64 % 3, (d.drawn / 512 % 9 = 0)::int
FROM whole_cells AS c
CROSS JOIN generate_series(1, :strata) AS s (number)
CROSS JOIN LATERAL (
    SELECT hashtextextended(s.number || c.metric || c.block, 11) & 2147483647
        AS drawn,
        hashtextextended(s.number || ' ' || c.block, 5) & 2147483647 AS place
) AS d
WHERE d.place % :blocks < :each_in
""")
_STRATA = text("""
INSERT INTO strata (experiment_id, stratum, commit_sha, lineage, flags)
SELECT experiment_id, 's' || s.number, control_commit,
    md5(CASE WHEN :flags = 0 THEN s.number ELSE 0 END::text),
    (SELECT jsonb_object_agg('flag' || f, CASE WHEN s.number >> f & 1 = 1 THEN 'on' ELSE 'off' END)
     FROM generate_series(0, :flags - 1) AS f)
FROM experiments CROSS JOIN generate_series(1, :strata) AS s (number)
""")
_UNITS = text("""
UPDATE block_units AS b SET treatment = c.n1, control = c.n0, own = c.n1
FROM (
    SELECT c.experiment_id, c.block, sum(c.n1) AS n1, sum(c.n0) AS n0
    FROM cells AS c JOIN experiments AS x
      ON x.experiment_id = c.experiment_id AND x.target_metric = c.metric
    GROUP BY c.experiment_id, c.block
) AS c
WHERE b.experiment_id = c.experiment_id AND b.block = c.block
""")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A look at an experiment that is offered so many strata, which twelve flags may make."""

    strata: int
    flags: int
    cells: int
    measured: Measured


def lay_strata(store: MeasuredStore, *, strata: int, flags: int) -> int:
    """Lays an experiment in many strata; returns how many cells it has."""
    shape = SHAPES["thin"]
    lay(store, 1, shape)
    with store.engine.begin() as connection:
        connection.execute(text("CREATE TEMP TABLE whole_cells ON COMMIT DROP AS TABLE cells"))
        connection.execute(text("DELETE FROM cells"))
        connection.execute(text("DELETE FROM strata"))
        connection.execute(_CELLS, {"strata": strata, "blocks": 168, "each_in": _EACH_IN})
        connection.execute(_STRATA, {"strata": strata, "flags": flags})
        connection.execute(_UNITS)
        cells = connection.execute(text("SELECT count(*) FROM cells")).scalar_one()
    store.vacuum()
    return cells


def run(strata: int, flags: int) -> Row:
    """Lays an experiment and measures a look at it, in a process that has done nothing else."""
    with measured_store() as store:
        cells = lay_strata(store, strata=strata, flags=flags)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            look = pool.apply(measured, (store.url, 1, SHAPES["thin"]))
    return Row(strata=strata, flags=flags, cells=cells, measured=look)


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "strata": lambda row: f"{row.strata:,}",
    "flags": lambda row: str(row.flags),
    "cells": lambda row: f"{row.cells:,}",
    "run": lambda row: f"{row.measured.evidence + row.measured.publish:.1f} s",
    f"CPU (≤ {LIMIT_CPU:.0f} s)": lambda row: f"{row.measured.cpu:.1f} s",
    f"peak MiB (≤ {LIMIT_MIB})": lambda row: f"{row.measured.peak_mib:,.0f}",
    "within": lambda row: "yes" if _is_within(row.measured) else "no",
}


def _is_within(look: Measured) -> bool:
    return look.cpu <= LIMIT_CPU and look.peak_mib <= LIMIT_MIB


def main() -> None:
    """Measures both kinds of strata, and prints them."""
    parser = options(__doc__)
    parser.add_argument("--strata", type=int, nargs="*", default=[100, 1_000, 10_000])
    chosen = parser.parse_args()
    rows = [run(strata, 0) for strata in chosen.strata]
    rows.append(run(2**FLAGS, FLAGS))
    report(rows, _COLUMNS, lines=chosen.lines)


if __name__ == "__main__":
    main()
