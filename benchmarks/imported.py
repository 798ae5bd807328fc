"""Imported units: what `import`, the first `evaluate` and `audit` of a file of many units take.

Run by `python -m benchmarks.imported --units 5000000`. A file of an A/B test, a row a unit, as
docs/import.md has it, is imported into an embedded PostgreSQL. Each command is a process of its
own. CPU is that of the command and of PostgreSQL; memory is the peak of each.
"""

import argparse
import json
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from rich.console import Console
from sqlalchemy import text

from benchmarks.commands import Row, as_table, measure
from benchmarks.rebuild import serving
from storage.postgres.engine import open_engine
from storage.schema.migrate import upgrade
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
_MAP = """
layout = "unit"
unit = "unit"
arm = "arm"

[times]
column = "seen"
zone = "UTC"

[commits]
control = "c0ffee00"
treatment = "decade10"

[metrics]
converted = "purchase"

[experiment]
control_commit = "c0ffee00"
treatment_commit = "decade10"
target_metric = "purchase"
"""
_EXPERIMENT = text("SELECT experiment_id FROM experiments")


def measured(units: int) -> list[Row]:
    """Imports so many units, and returns what each command took."""
    with serving() as (url, postgres), tempfile.TemporaryDirectory() as folder:
        file, names = Path(folder) / "units.parquet", Path(folder) / "map.toml"
        duckdb.sql(_UNITS.format(units=units, file=file))
        names.write_text(_MAP)
        upgrade(url)
        engine = open_engine(url)
        with engine.begin() as connection:
            create_project(connection, "default")

        def row(*words: str) -> Row:
            return measure(*words, url=url, events=units, postgres=postgres)

        rows = [row("import", str(file), "--map", str(names)), row("evaluate")]
        with engine.connect() as connection:
            experiment = connection.execute(_EXPERIMENT).scalar_one()
        engine.dispose()
        return [*rows, row("audit", experiment)]


def main() -> None:
    """Measures, and prints it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--units", default="1000000,5000000", help="units of the file")
    options.add_argument("--lines", type=Path, help="JSON lines are appended here")
    arguments = options.parse_args()
    rows = [row for units in arguments.units.split(",") for row in measured(int(units))]
    Console(width=150).print(as_table(rows, title="Commands over imported units", counted="units"))
    if arguments.lines:
        with arguments.lines.open("a") as lines:
            for row in rows:
                lines.write(json.dumps({"at": datetime.now(UTC).isoformat(), **asdict(row)}) + "\n")


if __name__ == "__main__":
    main()
