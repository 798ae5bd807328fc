"""Many flags in a single build: independent ones are pooled, what is aliased is named."""

from itertools import product

import pytest

A = "aaaaaaa1"
DAY = 1440.0


def test_independent_flags_are_pooled_and_flags_on_one_hash_name_each_other(story) -> None:
    story.deploy(A, minutes=0)
    for cart, search in product((True, False), repeat=2):
        served = {"cart": cart, "twin": cart, "search": search}
        rates = {"order": 0.16 if cart else 0.10}
        story.crowd(A, start=60, minutes=300, units=1000, rates=rates, flags=served)
    story.send()
    # A binding knows the flags of earlier ones.
    _, search, cart = (
        story.register(treatment_flag={"name": name, "treatment": True})
        for name in ("twin", "search", "cart")
    )
    story.tick(minutes=DAY)
    aliased, pooled = story.evidence(cart), story.evidence(search)
    assert story.contract(cart)["abstain_reason"] == "non_identifiable"
    assert [split["by"] for split in aliased["splits"]] == ["twin"]
    assert aliased["gates"]["aliased_with"] == ["twin=false", "twin=true"]
    assert story.contract(search)["abstain_reason"] == "power"
    assert pooled["splits"] == []
    assert pooled["gates"]["vif"] < 1.05
    assert pooled["policy"]["split_at"] == 2.0


@pytest.mark.parametrize("control", [None, False])
def test_units_without_the_flag_are_in_no_arm(story, control) -> None:
    story.deploy(A, minutes=0)
    for served, units in (({"cart": True}, 300), ({"cart": False}, 200), ({"search": True}, 90)):
        story.crowd(A, start=60, minutes=60, units=units, rates={"order": 0.1}, flags=served)
    story.crowd(A, start=60, minutes=60, units=80, rates={"order": 0.1})
    story.send()
    flag = {"name": "cart", "treatment": True, "control": control}
    experiment = story.register(treatment_flag=flag)
    story.tick(minutes=DAY)
    evidence = story.evidence(experiment)
    assert evidence["arms"]["treatment"]["units"] == 300
    assert evidence["arms"]["control"]["units"] == 200
    assert evidence["counts"]["partial"] == 0
