"""Imported units: what `import`, the first `evaluate` and `audit` of a file of many units take.

Run by `python -m benchmarks.days.imported --units 5000000`. A file of an A/B test, a row a unit, as
docs/import.md has it, is imported into an embedded PostgreSQL. Each command is a process of its
own. CPU is that of the command and of PostgreSQL; memory is the peak of each.
"""

from collections.abc import Callable

import duckdb
from sqlalchemy import text

from benchmarks.days.commands import COLUMNS, Row, measure
from benchmarks.report import numbers, options, report
from benchmarks.store import measured_store
from storage.tenants.projects import create_project

# Units of three weeks in an order of their own: 125 in 1,000 convert, in treatment 130.
_UNITS = """
COPY (
    SELECT 'u' || n AS unit,
        strftime(TIMESTAMP '2026-09-01' + to_seconds(CAST(hash(n) % 1814400 AS INTEGER)),
            '%Y-%m-%d %H:%M:%S') AS seen,
        arm,
        CAST(hash('outcome', n) % 1000 < CASE arm WHEN 'control' THEN 125 ELSE 130 END AS INTEGER)
            AS converted
    FROM (
        SELECT n, CASE hash('arm', n) % 2 WHEN 0 THEN 'control' ELSE 'treatment' END AS arm
        FROM range({units}) AS units(n)
    ) AS assigned
    ORDER BY seen
) TO '{file}' (FORMAT parquet)
"""
_QUERY = """
SELECT 'page_view' AS event, unit AS session_id, seen::TIMESTAMP AS occurred_at, arm
FROM 'units.parquet'
UNION ALL
SELECT 'purchase', unit, seen::TIMESTAMP, arm FROM 'units.parquet' WHERE converted = 1
"""
_EXPERIMENTS = """
[commits]
control = "c0ffee00"
treatment = "decade10"

[experiment]
control_commit = "c0ffee00"
treatment_commit = "decade10"
target_metric = "purchase"
"""
_EXPERIMENT = text("SELECT experiment_id FROM experiments")


def measured(units: int) -> list[Row]:
    """Imports so many units, and returns what each command took."""
    with measured_store() as store:
        duckdb.sql(_UNITS.format(units=units, file=store.folder / "units.parquet"))
        file, experiments = store.folder / "query.sql", store.folder / "experiments.toml"
        file.write_text(_QUERY)
        experiments.write_text(_EXPERIMENTS)
        with store.engine.begin() as connection:
            create_project(connection, "default")

        def row(*words: str) -> Row:
            return measure(*words, store=store, events=units)

        words = ("import", str(file), "--experiments", str(experiments))
        rows = [row(*words), row("evaluate")]
        with store.engine.connect() as connection:
            experiment = connection.execute(_EXPERIMENT).scalar_one()
        return [*rows, row("audit", experiment)]


def main() -> None:
    """Measures, and prints it."""
    parser = options(__doc__)
    parser.add_argument("--units", type=numbers, default=(1_000_000, 5_000_000))
    chosen = parser.parse_args()
    rows = [row for units in chosen.units for row in measured(units)]
    columns: dict[str, Callable[[Row], str]] = {"units": lambda row: f"{row.events:,}", **COLUMNS}
    report(rows, columns, lines=chosen.lines, title="Commands over imported units")


if __name__ == "__main__":
    main()
