"""The page on the lake: what it shows is typed, and reads what was sealed."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from storage.lake.parquet import COLUMNS
from storage.postgres.engine import connection_string

PAGE = (Path(__file__).parents[3] / "docs/operations/scale.md").read_text()


def test_a_teams_own_duckdb_reads_the_listed_files(day) -> None:
    day.seal()
    (day.lake.folder / f"{day.listed()[0].parent}" / "abandoned.parquet").write_bytes(b"half")
    (program, *_) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "SERVICE_LAKE": str(day.lake.folder),
            "SERVICE_DATABASE_URL": connection_string(
                day.engine.url.render_as_string(hide_password=False)
            ),
        },
        capture_output=True,
        text=True,
        check=True,
    )

    counts = Counter(row[2] for row in day.stored())
    output = dict(re.findall(r"│ (\w+) +│ +(\d+) │", done.stdout))
    assert output == {event: str(count) for event, count in counts.items()}


def test_every_column_is_named_in_the_order_of_the_files() -> None:
    table = PAGE.split("## What is in a file")[1].split("\n## ")[0]
    named = [
        name
        for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]

    assert sorted(named) == sorted(COLUMNS.names)
    assert all(f"{name} " in PAGE.split("CREATE EXTERNAL TABLE")[1] for name in named)
