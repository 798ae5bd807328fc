"""What docs/rollouts.md tells controllers to send is answered as they read it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from storage.keys import KeyKind
from tests.api.test_release_gate import ABSTAIN, BREACHED, LIFT, asked, published

PAGE = (Path(__file__).parents[1] / "docs" / "rollouts.md").read_text()
A, B = "a" * 40, "b" * 40


def resources(kind: str) -> Iterator[dict[str, Any]]:
    for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        yield from (one for one in yaml.safe_load_all(block) if one["kind"] == kind)


@pytest.fixture
def canary(service: Any) -> Any:
    for sha in (A, B):
        service.post("/v1/deploys", {"commit": {"sha": sha}})
    asked(service)
    return service


def address(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def measured(service: Any, template: str) -> str:
    """Returns what Argo Rollouts makes of a template's web metric."""
    (found,) = (one for one in resources("AnalysisTemplate") if one["metadata"]["name"] == template)
    (metric,) = found["spec"]["metrics"]
    web = metric["provider"]["web"]
    assert web["jsonPath"] == "{$}"
    filled = web["url"].replace("{{ args.reward-url }}", "http://reward")
    key = service.project.keys[KeyKind.PROJECT]
    headers = {
        header["key"]: header["value"].replace("{{ args.reward-key }}", key)
        for header in web["headers"]
    }
    answer = service.client.get(address(filled), headers=headers)
    assert answer.status_code == 200
    holds = {
        name: holds_of(metric[name], answer.json()["phase"])
        for name in ("successCondition", "failureCondition")
    }
    assert not all(holds.values())
    if holds["failureCondition"]:
        return "Failed"
    return "Successful" if holds["successCondition"] else "Inconclusive"


def holds_of(condition: str, phase: str) -> bool:
    """A condition of the one form that the page uses."""
    told = re.fullmatch(r'result\.phase (==|!=) "(\w+)"', condition)
    assert told is not None
    return (phase == told[2]) == (told[1] == "==")


ENDS = [
    (ABSTAIN, {}, "Inconclusive", "Successful"),
    (ABSTAIN, {"not_worse_than": -0.1}, "Successful", "Successful"),
    ({**ABSTAIN, "abstain_reason": "interacting"}, {}, "Inconclusive", "Successful"),
    ({**ABSTAIN, **BREACHED}, {}, "Failed", "Failed"),
    ({"verdict": "rollback", **LIFT}, {}, "Failed", "Failed"),
    ({"verdict": "keep", **LIFT}, {}, "Successful", "Successful"),
]


@pytest.mark.parametrize(("answer", "known", "step", "watch"), ENDS)
def test_argo_goes_on_back_or_waits_without_pausing_or_aborting_for_an_abstention(
    *, canary, answer, known, step, watch
) -> None:
    published(canary, answer, **known)
    assert measured(canary, "may-go-on") == step
    assert measured(canary, "must-go-back") == watch
    for template in resources("AnalysisTemplate"):
        (metric,) = template["spec"]["metrics"]
        # More minutes than any experiment is open for.
        assert metric["inconclusiveLimit"] > 28 * 1440
        assert metric["consecutiveErrorLimit"] >= 1440
        assert "count" not in metric


@pytest.mark.parametrize(("answer", "known", "step", "watch"), ENDS)
def test_flagger_promotes_and_goes_back_by_what_it_can_send(
    *, canary, answer, known, step, watch
) -> None:
    published(canary, answer, **known)
    (resource,) = resources("Canary")
    hooks = {hook["type"]: hook for hook in resource["spec"]["analysis"]["webhooks"]}
    passed = {}
    for kind, hook in hooks.items():
        metadata = {**hook["metadata"], "key": canary.project.keys[KeyKind.PROJECT]}
        assert set(metadata) == set(hook["metadata"])
        body = {
            "name": resource["metadata"]["name"],
            "namespace": "default",
            "phase": "Progressing",
            "checksum": "85d557f47b",
            "metadata": metadata,
        }
        answered = canary.client.post(address(hook["url"]), json=body)
        passed[kind] = answered.status_code <= 202
        assert answered.headers["Content-Type"].startswith("text/plain")
    assert passed == {
        "confirm-promotion": step == "Successful",
        "rollback": watch == "Failed",
    }
