"""An import that is over: no row of each unit is stored, and all that is promised of it holds."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from cli.main import main
from storage.lake.lake import open_lake
from storage.lake.sealing import Sealer
from storage.tenants.projects import create_project
from tests.conftest import Store, filled_model, fresh_store

UNITS = 1200
QUERY = """
WITH visit AS (FROM 'visitors.csv')
SELECT 'page_view' AS event, visitor AS session_id, person AS user_ref, "at" AS occurred_at, arm,
    NULL AS value FROM visit
UNION ALL
SELECT 'order', visitor, person, "at", arm, NULL FROM visit WHERE ordered = 1
UNION ALL
SELECT 'purchase', visitor, person, "at", arm, 100 * spent FROM visit WHERE spent > 0
"""
EXPERIMENTS = """
[commits]
old = "aaaaaaa"
new = "bbbbbbb"
[[experiment]]
control_commit = "aaaaaaa"
treatment_commit = "bbbbbbb"
target_metric = "order"
guardrails = ["revenue"]
[[experiment]]
control_commit = "aaaaaaa"
treatment_commit = "bbbbbbb"
target_metric = "revenue"
kind = "mean"
currency = "USD"
sources = ["purchase"]
"""


def rows() -> list[str]:
    """Visitors of twenty days, of whom the new build's buy more; each person sees both."""
    lines = ["visitor,person,arm,at,ordered,spent"]
    for number in range(UNITS):
        arm = "new" if number % 2 else "old"
        ordered = number % 10 < (6 if number % 2 else 2)
        pair = number // 2
        at = f"2026-08-{1 + pair % 20:02d} {pair % 24:02d}:{pair % 60:02d}:00"
        spent = f"{number % 37}.50" if ordered else ""
        person = 2 * (number // 4) + int(number % 4 in (1, 2))
        lines.append(f"v{number},p{person},{arm},{at},{int(ordered)},{spent}")
    return lines


def command(*words: Any, code: int = 0) -> Any:
    result = CliRunner().invoke(main, [*map(str, words), "--json"])
    assert result.exit_code == code, result.output
    # The orchestrator's own lines are none of the command's.
    assert words[0] != "evaluate" or result.stderr == ""
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def _imported(postgres_url, migrated_template, tmp_path_factory) -> Iterator[str]:
    """A store that has read such a file and judged it once, of which each test has a copy."""
    folder = tmp_path_factory.mktemp("visitors")
    (folder / "visitors.csv").write_text("\n".join(rows()))
    file, experiments = folder / "query.sql", folder / "experiments.toml"
    file.write_text(QUERY)
    experiments.write_text(EXPERIMENTS)

    def fill(store: Store) -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
            monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
            with store.engine.begin() as connection:
                create_project(connection, "default")
            command("import", file, "--experiments", experiments)
            command("evaluate")

    with filled_model(postgres_url, migrated_template, fill) as (name, _):
        yield name


@pytest.fixture
def store(postgres_url, _imported, monkeypatch, tmp_path) -> Iterator[Store]:
    with fresh_store(postgres_url, _imported) as store:
        monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
        monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
        monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "lake"))
        yield store


UNIT_ROWS = text("""
SELECT (SELECT count(*) FROM exposures) + (SELECT count(*) FROM conversions)
    + (SELECT count(*) FROM amounts)
""")
UNITS_OF_CELLS = text("""
SELECT sum(n1 + n0) FROM cells WHERE metric = 'order' GROUP BY experiment_id
""")


def count(store: Any, query: Any) -> int:
    with store.engine.begin() as connection:
        return connection.execute(query).scalars().first()


def served(store: Any) -> list[tuple[str, str]]:
    with store.engine.begin() as connection:
        result = connection.execute(
            text("SELECT contract::text, evidence::text FROM verdicts ORDER BY experiment_id")
        )
        return [(row.contract, row.evidence) for row in result]


def test_its_verdict_is_that_of_an_import_whose_units_are_stored(store) -> None:
    contracts = command("evaluate")
    assert count(store, UNIT_ROWS) == 0
    assert count(store, UNITS_OF_CELLS) == UNITS
    assert {contract["verdict"] for contract in contracts} != {"abstain"}
    first = served(store)

    command("rebuild")
    assert count(store, UNIT_ROWS) > UNITS
    assert served(store) == first


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.nightly
def test_whoever_is_forgotten_stays_in_its_counts(store, *, sealed) -> None:
    ids = [contract["experiment_id"] for contract in command("evaluate")]
    first = served(store)
    if sealed:
        outcome = Sealer(engine=store.engine, lake=open_lake()).seal()
        assert outcome is not None
        assert outcome.rows >= UNITS

    erased = command("forget", "--user-ref", "p7", "--project", "default")

    # Two visits, each in two experiments.
    assert (erased["sessions"], erased["exposures"]) == (2, 4)
    with store.engine.begin() as connection:
        left = connection.execute(text("SELECT count(*) FROM exposures WHERE unit LIKE 'v%'"))
        assert left.scalar_one() == 0
    assert command("audit", ids[0])["equal"]
    again = command("evaluate", "--as-of", "2026-11-01T00:00:00Z", "--evidence")
    assert [json.dumps(answer["contract"]) for answer in again] == [
        json.dumps(json.loads(contract)) for contract, _ in first
    ]
    command("rebuild")
    assert served(store) == first
