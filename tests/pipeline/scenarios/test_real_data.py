"""Real data: two public experiments with a known truth.

The data stands beside the checkout, not in it; where it is absent these tests say so and skip.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import main
from storage.tenants.projects import create_project
from storage.tenants.settings import apply_settings
from tests.repetition import also_nightly

DATA = Path(__file__).parents[4] / "shared" / "data"
MAPS = Path(__file__).parents[3] / "docs" / "maps"

pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no real data at {DATA}")

Run = Callable[..., Any]


@pytest.fixture
def run(store, monkeypatch) -> Iterator[Run]:
    """Runs a command on the test's store and returns its JSON."""
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
    with store.engine.begin() as connection:
        project = create_project(connection, "default")
        # Every unit is counted to the end: small differences end nothing before.
        apply_settings(connection, project.project_id, {"futility_margin": None})

    def command(*words: str) -> Any:
        result = CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return command


def arms(experiment: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Units and converting units of each arm, as the import counts them."""
    counted = experiment["arms"].items()
    return {arm: (count["units"], count["converting"]) for arm, count in counted}


@dataclass(frozen=True, kw_only=True)
class Visitors:
    """Rows of the landing page's file from its begin on, in which visitors stand in no order.

    Attributes:
        rows: How many; None for all.
        skipped: Rows whose page is not their arm's.
    """

    rows: int | None
    control: tuple[int, int]
    treatment: tuple[int, int]
    skipped: int


SOME = Visitors(rows=60_000, control=(29_594, 3_604), treatment=(29_583, 3_526), skipped=822)
ALL = Visitors(rows=None, control=(145_274, 17_489), treatment=(145_310, 17_264), skipped=3_893)


@pytest.mark.parametrize("visitors", also_nightly([SOME], [ALL]), ids=["some", "all"])
def test_a_landing_page_without_effect_abstains_for_power(run, tmp_path, visitors) -> None:
    file = tmp_path / "ab_data.csv"
    with gzip.open(DATA / "ab_data.csv.gz", "rb") as whole:
        heads = 1
        stop = None if visitors.rows is None else heads + visitors.rows
        file.write_bytes(b"".join(islice(whole, stop)))
    imported = run("import", str(file), "--map", str(MAPS / "ab_data.toml"))
    (experiment,) = imported["experiments"]
    assert arms(experiment) == {"control": visitors.control, "treatment": visitors.treatment}
    assert imported["skipped_rows"] == {"where": visitors.skipped}
    (contract,) = run("evaluate")
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "power")
    evidence = run("explain", experiment["experiment_id"])
    counts = evidence["counts"]
    assert counts["in_cells"] + counts["open"] + counts["in_flight"] == (
        visitors.control[0] + visitors.treatment[0]
    )
    # 28 days of exposure are over: every block has closed.
    assert counts["open"] == counts["in_flight"] == 0
    for arm, count in arms(experiment).items():
        counted = evidence["arms"][arm]
        assert (counted["units"], counted["conversions"]) == count


def test_two_e_mails_with_large_effects_are_both_kept_against_one_control(run) -> None:
    imported = run("import", str(DATA / "hillstrom.csv.gz"), "--map", str(MAPS / "hillstrom.toml"))
    mens, womens = imported["experiments"]
    assert arms(mens) == {"control": (21_306, 2_262), "treatment": (21_307, 3_894)}
    assert arms(womens) == {"control": (21_306, 2_262), "treatment": (21_387, 3_238)}
    contracts = {contract["experiment_id"]: contract for contract in run("evaluate")}
    # The truth, over all customers: 18.276 % and 15.140 % against 10.617 %.
    for experiment, lift in ((mens, 0.18276 - 0.10617), (womens, 0.15140 - 0.10617)):
        contract = contracts[experiment["experiment_id"]]
        assert contract["verdict"] == "keep"
        low, high = contract["ci"]
        assert low <= lift <= high


def test_a_gzipped_file_is_told_by_its_bytes_not_by_its_name(run, tmp_path) -> None:
    rows = gzip.decompress((DATA / "hillstrom.csv.gz").read_bytes()).splitlines()[:501]
    plain, packed = tmp_path / "plain.csv", tmp_path / "packed.csv"
    plain.write_bytes(b"\n".join(rows))
    packed.write_bytes(gzip.compress(b"\n".join(rows)))
    layout = tmp_path / "map.toml"
    layout.write_text((MAPS / "hillstrom.toml").read_text().split("[[experiment]]")[0])
    counts = [run("import", str(path), "--map", str(layout))["events"] for path in (plain, packed)]
    assert counts[0] == counts[1] > 0
