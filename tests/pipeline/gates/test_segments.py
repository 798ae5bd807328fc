"""Segments: arms that share a property of users unequally are compared within its values."""

import pytest

from domain.wording.warnings import warning_sentences
from tests.repetition import also_nightly
from tests.world import DAY, A, K

# Units of control and of treatment, and the rate of both.
IOS, ANDROID = (1500, 2500, 0.10), (2500, 1500, 0.50)


def uneven(story, segments: list[str], **changed: object) -> str:
    """Registers a canary without an effect, whose arms share two platforms unequally."""
    story.settings(segments=segments, locked=[])
    story.canary()
    for platform, (control, treatment, rate) in (("ios", IOS), ("android", ANDROID)):
        for commit, units in ((A, control), (K, treatment)):
            properties = {"platform": platform, "odd": ["never", "a", "value"], **changed}
            story.crowd(
                commit,
                start=1,
                minutes=600,
                units=units,
                rates={"order": rate},
                properties=properties,
            )
    return story.judged(minutes=DAY)


def test_a_platform_that_the_arms_share_unequally_splits_the_strata_and_is_named(story) -> None:
    experiment = uneven(story, ["platform", "plan"])
    evidence = story.evidence(experiment)
    assert story.contract(experiment)["verdict"] == "abstain"
    (split,) = evidence["splits"]
    assert split["by"] == "properties.platform"
    assert split["e_value"] > 100
    assert evidence["warnings"] == ["turnover_unseen", "retrospective", "uneven_segments"]
    *_, sentence = warning_sentences(story.decoded(experiment))
    assert "between the arms: properties.platform." in sentence
    assert abs(evidence["totals"]["lift"]) < 0.02
    assert evidence["policy"]["segments"] == ["plan", "platform"]
    # The rates differ between platforms, and that is nobody's fault.
    assert evidence["gates"]["interacting_because"] == []


@pytest.mark.parametrize("segments", also_nightly([["odd", "plan"]], [[], ["odd"], ["plan"]]))
@pytest.mark.nightly
def test_a_platform_that_no_segment_names_makes_a_false_answer(story, segments) -> None:
    experiment = uneven(story, segments)
    assert story.contract(experiment)["verdict"] == "rollback"
    assert story.evidence(experiment)["warnings"] == ["turnover_unseen", "retrospective"]


@pytest.mark.nightly
def test_segments_are_those_of_the_binding(story) -> None:
    experiment = uneven(story, [])
    story.settings(segments=["platform"], locked=[])
    story.tick(minutes=2 * DAY)
    assert "segments" not in story.evidence(experiment)["policy"]


def test_a_property_has_eight_values_of_its_own(story) -> None:
    story.settings(segments=["version"], locked=[])
    story.canary()
    for version in range(40):
        for commit, units in ((A, 20), (K, 20 + 40 * (version == 0))):
            story.crowd(
                commit,
                start=1,
                minutes=300,
                units=units,
                rates={"order": 0.2},
                properties={"version": version},
            )
    experiment = story.judged(minutes=DAY)
    evidence = story.evidence(experiment)
    assert [split["by"] for split in evidence["splits"]] == ["properties.version"]
    assert evidence["gates"]["vif"] < 1.2
