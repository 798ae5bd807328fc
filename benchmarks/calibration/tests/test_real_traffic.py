"""Real traffic split at random, again and again: how often each test finds an effect of nothing.

The data stands beside the checkout, not in it; where it is absent these tests say so and skip.
"""

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.calibration.real_traffic import DATA, LOOKS, VISITORS, conversions, split, splits
from benchmarks.calibration.traffic import AT_ONCE, Ints
from benchmarks.peers import counts_of, z_score
from stats.decision.evidence import evaluate
from stats.looks.series import Series
from storage.tenants.sample import Sample

ALPHA = 0.05

pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"no real data at {DATA}")


@pytest.fixture(scope="module")
def visitors() -> Ints:
    return conversions()


@pytest.mark.parametrize(
    "count", [500, pytest.param(2_000, marks=[pytest.mark.deep, pytest.mark.timeout(1800)])]
)
def test_of_splits_of_the_same_traffic_no_more_than_alpha_find_an_effect_in_289_looks(
    visitors, count
) -> None:
    ours, peeked = 0, 0
    critical = norm.ppf(1 - ALPHA / 2)
    for series in splits(visitors, count, seed=20_260_105):
        for each, evidence in zip(series, evaluate(series), strict=True):
            fired = evidence.decision.verdict in ("keep", "rollback")
            assert fired or len(evidence.looks) == LOOKS
            ours += fired
            peeked += bool(np.any(np.abs(z_score(counts_of(each))) > critical))
    print(f"{count} splits: ours {ours / count:.1%}, z at each look {peeked / count:.1%}")  # noqa: T201
    assert ours <= ALPHA * count
    # The mutant: a z test that is looked at as often.
    assert peeked > 0.4 * count


def test_of_splits_of_a_sample_of_the_traffic_no_more_than_alpha_find_an_effect(visitors) -> None:
    generator = np.random.default_rng(20_261_122)
    count, fired = 300, 0
    for begin in range(0, count, AT_ONCE):
        series: list[Series] = []
        for number in range(begin, min(begin + AT_ONCE, count)):
            # Each time another project's tenth.
            sample = Sample(salt=f"sample:{number}", rates={"session": 0.1})
            taken = np.array([sample.takes(f"s-{each}", None) for each in range(0, VISITORS, 5)])
            treated = generator.integers(0, 2, taken.size)
            measured = visitors[::5][taken]
            series.append(split(measured, treated[taken]))
        fired += sum(each.decision.verdict in ("keep", "rollback") for each in evaluate(series))
    assert fired <= ALPHA * count
