"""What docs/concepts.md quotes is what the product says, of counts that stand here."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cli.main import main
from domain.measure import Measure
from domain.policy import Numbers
from domain.words import AbstainReason, EndedBecause, Verdict
from orchestration.pipeline.sentence import statement
from stats.counts.closed_cells import ClosedCells
from stats.counts.finding import Findings
from stats.decision.evidence import evaluate
from stats.looks.series import Guardrail, Series
from tests.stores.example import example_evidence

PAGE = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text()
HOUR, BLOCK = 3600, 300
# 2026-11-20 08:00 UTC.
START = 1_795_161_600


@dataclass(frozen=True, kw_only=True)
class World:
    """A shop for some hours: in each block of five minutes so many units and conversions an arm."""

    hours: float
    units: tuple[int, int] = (40, 40)
    orders: tuple[int, int]
    errors: tuple[int, int] = (0, 0)
    crossed: int = 0
    policy: dict[str, Any] = field(default_factory=dict)

    def says(self) -> tuple[Verdict, AbstainReason | None, str]:
        """The verdict, its reason, and the sentence."""
        count = round(self.hours * HOUR / BLOCK)
        block = START + np.arange(count) * BLOCK

        def every(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
            return np.full(count, number)

        n1, n0 = every(self.units[0]), every(self.units[1])
        errors = ClosedCells(
            block=block,
            stratum=every(0),
            n1=n1,
            x1=every(self.errors[0]),
            n0=n0,
            x0=every(self.errors[1]),
        )
        rail = Guardrail(name="error", better="lower", window_seconds=300, cells=errors)
        crossed = np.repeat(block, self.crossed)
        (seen,) = evaluate(
            [
                Series(
                    policy=Numbers(**self.policy),
                    start=START,
                    as_of=int(block[-1]) + BLOCK + 1800 + 120,
                    closed_at=None,
                    cuts=(),
                    target=ClosedCells(
                        block=block,
                        stratum=every(0),
                        n1=n1,
                        x1=every(self.orders[0]),
                        n0=n0,
                        x0=every(self.orders[1]),
                    ),
                    guardrails=(rail,),
                    crossings=Findings(block=crossed, stratum=0 * crossed, at=crossed + BLOCK),
                )
            ]
        )
        rate = self.orders[1] / self.units[1] if self.units[1] else None
        shop = Measure(name="order_placed", mean=False, currency=None, unit="session", control=rate)
        margin = {"futility_margin": self.policy.get("futility_margin")}
        said = statement(seen, shop, example_evidence(policy=margin).policy).sentence
        return seen.decision.verdict, seen.decision.abstain_reason, said


WORLDS = {
    "keep": World(hours=9, orders=(5, 4), errors=(0, 1)),
    "rollback": World(hours=9, orders=(3, 4)),
    "iterate": World(hours=9, orders=(5, 4), errors=(3, 1)),
    "power": World(hours=6, orders=(4, 4)),
    "almost": World(hours=9, orders=(5, 4), errors=(1, 1)),
    "futility": World(
        hours=24 * 20, units=(9000, 9000), orders=(900, 900), policy={"futility_margin": 0.01}
    ),
    "non_identifiable": World(hours=6, units=(80, 0), orders=(8, 0)),
    "interacting": World(hours=6, orders=(4, 4), crossed=6),
}


def quoted() -> list[str]:
    return re.findall(r"^> (.+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", WORLDS)
def test_each_sentence_that_is_quoted_is_what_the_product_says(name) -> None:
    verdict, reason, said = WORLDS[name].says()
    assert said in quoted()
    if name in {*Verdict, *AbstainReason}:
        assert name == (reason or verdict)


def test_no_other_sentence_is_quoted() -> None:
    assert sorted(quoted()) == sorted(world.says()[2] for world in WORLDS.values())


def test_every_reason_of_an_abstention_and_of_an_end_has_what_to_do() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*) \|$", PAGE, re.MULTILINE))
    assert rows.keys() == {
        *("abstain_reason", "ended_because"),
        *map(str, AbstainReason),
        *map(str, EndedBecause),
    }
    assert all(rows.values())


def test_the_plan_is_what_the_command_prints() -> None:
    ((words, shown),) = re.findall(
        r"```sh\ndeploy-reward (plan .*)\n```\n\n```text\n(.*?)\n```", PAGE, re.DOTALL
    )
    printed = CliRunner().invoke(main, words.split()).output.splitlines()
    assert set(shown.splitlines()) <= set(printed)
