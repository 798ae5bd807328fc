"""Many flags in a single build: independent ones are pooled, what is aliased is named."""

from itertools import product

import msgspec
import pytest

from cli.changes.outcome import Poll, outcome
from cli.changes.report import junit
from domain.contract import Contract
from mcp_server.explanation import explanation
from tests.clients.owner import Owner

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


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize(("treatment", "control"), [(10.0, 20), ("10", "20.0"), (-10.0, 0)])
def test_a_whole_number_is_the_same_value_in_each_client_s_spelling(
    story, treatment, control, drawn
) -> None:
    story.settings(verified_draws=drawn)
    story.deploy(A, minutes=0)
    flag = {"name": "price", "treatment": treatment, "control": control}
    for start, number, units in ((60, treatment, 100), (60.1, control, 150), (60.1, 7, 30)):
        for spelled in (int(float(number)), f"{float(number)} ", float(number)):
            served = {"price": spelled}
            story.crowd(A, start=start, minutes=60, units=units, rates={"order": 0.1}, flags=served)
    story.send()
    experiment = story.register(treatment_flag=flag)
    story.tick(minutes=DAY)
    arms = story.evidence(experiment)["arms"]
    assert [arms[arm]["units"] for arm in ("treatment", "control")] == [300, 450]


TEST = {"name": "exp", "treatment": "test"}
# Nobody in the test differs: who is not in it converts less.
NOT_IN_TEST = {"control": (919, 0.215), "test": (873, 0.196)}


def by_value(story, values: dict[object, tuple[int, float]], *, start: float = 60) -> None:
    """Lets sessions with each value of the flag come within five hours, at a rate of orders."""
    for value, (units, rate) in values.items():
        rates, flags = {"order": rate}, {"exp": value}
        story.crowd(A, start=start, minutes=300, units=units, rates=rates, flags=flags)


def judged(story, **flag: object) -> str:
    story.send()
    experiment = story.register(treatment_flag={**TEST, **flag})
    story.tick(minutes=DAY)
    return experiment


@pytest.mark.parametrize("nothing", ["false", False, "None", " undefined", ""])
def test_units_that_are_not_in_the_experiment_are_no_control(story, nothing) -> None:
    story.deploy(A, minutes=0)
    by_value(story, {**NOT_IN_TEST, nothing: (4208, 0.05)})
    experiment = judged(story)
    assert story.contract(experiment)["verdict"] == "abstain"
    evidence = story.evidence(experiment)
    assert evidence["arms"]["treatment"]["units"] == 873
    # The first exposes no earlier than treatment's first event, which begins the experiment.
    assert evidence["arms"]["control"]["units"] == 918
    assert [each["taken_for"] for each in evidence["flag_values"]] == ["treatment", "control"]
    story.require_the_counts_to_add_up()


def test_while_several_values_may_be_control_s_every_face_names_them_and_the_cure(story) -> None:
    story.deploy(A, minutes=0)
    by_value(story, {"test": (900, 0.4), "b": (900, 0.2), "c": (300, 0.2), "x": (5, 1.0)})
    held = judged(story)
    assert story.answer(held, minutes=DAY) == ("abstain", "interacting", False)
    evidence = story.decoded(held)
    assert evidence.gates.interacting_because == ("control_unnamed",)
    assert {each.value: (each.units, each.taken_for) for each in evidence.flag_values} == {
        "test": (900, "treatment"),
        "b": (900, "unclear"),
        "c": (300, "unclear"),
        "x": (5, "left_out"),
    }
    values, cure = "`test` 900, `b` 900, `c` 300, `x` 5", "register the change again with `control`"
    page = Owner(story).page(f"/dashboard/experiments/{held}")
    poll = Poll(contract=msgspec.convert(story.contract(held), Contract), evidence=evidence)
    end = outcome(poll, accept_harm=None, waited=0, timeout=0)
    assert end is not None
    gate = junit(poll, end).decode()
    explained = explanation(evidence, None)["evidence"]["sentence"]
    for said in (evidence.sentence, explained, page, gate):
        assert values in said
        assert cure in said.replace("’", "'")
    # It is another experiment, which counts anew, and no further attempt at the same.
    named = story.register(treatment_flag={**TEST, "control": "b"})
    assert named != held
    assert story.register(treatment_flag={**TEST, "control": "b "}) == named
    assert story.bound(named)["attempt"] == 1


def test_a_value_of_few_units_is_left_out_from_the_look_on_at_which_it_is_rare(story) -> None:
    story.deploy(A, minutes=0)
    # It is the only value at first, and has more than 1 % of the units for an hour.
    by_value(story, {"x": (8, 1.0)}, start=60.5)
    by_value(story, {"test": (900, 0.2), "control": (900, 0.2)}, start=75)
    story.units_of(A, minutes=60, units=1, flags={"exp": "test"})
    experiment = judged(story)
    evidence = story.evidence(experiment)
    assert [each["taken_for"] for each in evidence["flag_values"]] == [
        "treatment",
        "control",
        "left_out",
    ]
    assert evidence["arms"]["control"]["units"] == 900
    assert evidence["counts"]["excluded"] == 8
    assert "values_left_out" in evidence["warnings"]
    assert [look["gated"] for look in evidence["looks"]][-1] is False
    story.require_the_counts_to_add_up()


@pytest.mark.parametrize("form", [True, "true", " True ", "TRUE"])
def test_the_opposite_is_control_of_a_boolean_in_whatever_form_it_comes(story, form) -> None:
    story.deploy(A, minutes=0)
    for value, units in ((form, 300), (False, 200), ("False", 50), ("none", 90), ("blue", 7)):
        story.crowd(
            A, start=60, minutes=60, units=units, rates={"order": 0.1}, flags={"exp": value}
        )
    experiment = judged(story, treatment=form)
    evidence = story.evidence(experiment)
    assert [evidence["arms"][arm]["units"] for arm in ("treatment", "control")] == [300, 250]
    assert evidence["counts"]["partial"] == 7
    assert (
        story.register(treatment_flag={**TEST, "treatment": True, "control": "false"}) == experiment
    )


@pytest.mark.parametrize(("control", "units"), [(None, 0), (False, 200), ("b", 100)])
def test_a_control_that_is_named_is_that_value_alone(story, control, units) -> None:
    story.deploy(A, minutes=0)
    by_value(
        story, {"test": (200, 0.2), False: (200, 0.2), **({"b": (100, 0.2)} if control else {})}
    )
    evidence = story.evidence(judged(story, control=control))
    assert evidence["arms"]["control"]["units"] == units
    assert ("control_unseen" in evidence["warnings"]) == (control is None)
    assert "flag_values" not in evidence


def test_two_flags_that_wait_for_a_deploy_are_two_experiments(story) -> None:
    first = story.register(treatment_flag=TEST)
    assert story.register(treatment_flag={**TEST, "name": "other"}) != first
    assert story.register(treatment_flag=TEST) == first
