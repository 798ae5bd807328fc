"""Many flags in one build: independent ones are pooled, what is aliased is named."""

from itertools import product

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
    story.walk(minutes=DAY)
    aliased, pooled = story.evidence(cart), story.evidence(search)
    assert story.contract(cart)["abstain_reason"] == "non_identifiable"
    assert [split["by"] for split in aliased["splits"]] == ["twin"]
    assert aliased["gates"]["aliased_with"] == ["twin=false", "twin=true"]
    assert story.contract(search)["abstain_reason"] == "power"
    assert pooled["splits"] == []
    assert pooled["gates"]["vif"] < 1.05
    assert pooled["policy"]["split_at"] == 3.0
