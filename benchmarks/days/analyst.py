"""The analyst's day: the query over the same files that a data engineer would write instead."""

import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

_SECOND = 1_000_000
BLOCK = 300 * _SECOND
# Seconds of the window of each metric: three targets of one canary, and a guardrail.
METRICS = {"activation": 1800, "signup_completed": 1800, "search": 1800, "error": 300}


def statement(files: str) -> str:
    """Returns the query: a session's first event exposes it, and each metric has a join of its own.

    It knows no late events, crossover, sessions in flight, users, routes or checks.
    """
    source = f"read_parquet('{files}')"
    outcomes = ", ".join(
        f"m{i} AS (SELECT session_id, occurred FROM {source} WHERE event = '{name}')"
        for i, name in enumerate(METRICS)
    )
    converted = ", ".join(
        f"max(CAST(m{i}.occurred BETWEEN e.at AND e.at + {window * _SECOND} AS TINYINT)) AS x{i}"
        for i, window in enumerate(METRICS.values())
    )
    joins = " ".join(f"LEFT JOIN m{i} USING (session_id)" for i in range(len(METRICS)))
    sums = ", ".join(f"sum(x{i})" for i in range(len(METRICS)))
    return f"""
WITH e AS (
    SELECT session_id, arg_min(commit_sha, occurred) AS commit_sha, min(occurred) AS at
    FROM {source} GROUP BY session_id
), {outcomes}, u AS (
    SELECT e.session_id, e.commit_sha, e.at // {BLOCK} AS block, {converted}
    FROM e {joins} GROUP BY 1, 2, 3
)
SELECT block, commit_sha, count(*), {sums} FROM u GROUP BY 1, 2 ORDER BY 1, 2
"""


def analysed(lake: Path) -> tuple[float, Sequence[tuple[object, ...]]]:
    """Returns the CPU seconds of the query in a single thread, and its rows by block and commit."""
    with duckdb.connect(":memory:", config={"threads": 1}) as database:
        spent = time.process_time()
        rows = database.execute(statement(f"{lake}/*/*.parquet")).fetchall()
        return time.process_time() - spent, rows
