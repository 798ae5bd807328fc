"""Rollout controllers: Argo Rollouts and Flagger, as far as they ask a gate and read its answer."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import yaml

from storage.tenants.keys import KeyKind
from tests.clients.page import example
from tests.world import World


def resources(kind: str) -> Iterator[dict[str, Any]]:
    """The resources of a kind that docs/rollouts.md hands out."""
    for name in ("argo-templates.yaml", "argo-rollout.yaml", "flagger.yaml"):
        yield from (each for each in yaml.safe_load_all(example(name)) if each["kind"] == kind)


def request_target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def argo_arguments(commit: str) -> dict[str, str]:
    """What the Rollout of the page hands to its templates, once it is labelled with a commit."""
    (rollout,) = resources("Rollout")
    analysis = rollout["spec"]["strategy"]["canary"]["analysis"]
    labels = {**rollout["metadata"]["labels"], "deploy-reward/commit": commit}
    values: dict[str, str] = {}
    for argument in analysis["args"]:
        if "value" in argument:
            values[argument["name"]] = argument["value"]
        else:
            field = argument["valueFrom"]["fieldRef"]["fieldPath"]
            label = re.fullmatch(r"metadata\.labels\['(.+)'\]", field)
            assert label is not None
            values[argument["name"]] = labels[label[1]]
    return values


def argo_measurement(service: World, template: str, commit: str) -> str:
    """What Argo Rollouts makes of a template's web metric: a GET, judged by two conditions."""
    templates = {each["metadata"]["name"]: each for each in resources("AnalysisTemplate")}
    result = templates[template]
    (metric,) = result["spec"]["metrics"]
    web = metric["provider"]["web"]
    assert web["jsonPath"] == "{$}"
    values = {**argo_arguments(commit), "reward-key": service.project.keys[KeyKind.PROJECT]}
    assert {argument["name"] for argument in result["spec"]["args"]} == set(values)
    headers = {header["key"]: _filled(header["value"], values) for header in web["headers"]}
    url = _filled(web["url"], values)
    answer = service.client.get(request_target(url), headers=headers)
    assert answer.status_code == 200, answer.text
    holds = {
        name: _holds(metric[name], answer.json()["phase"])
        for name in ("successCondition", "failureCondition")
    }
    assert not all(holds.values())
    if holds["failureCondition"]:
        return "Failed"
    return "Successful" if holds["successCondition"] else "Inconclusive"


def _filled(text: str, values: dict[str, str]) -> str:
    filled = re.sub(r"{{ args\.([\w-]+) }}", lambda result: values[result[1]], text)
    assert "{{" not in filled
    return filled


def _holds(condition: str, phase: str) -> bool:
    """Whether a condition of the only form that the page uses holds."""
    form = re.fullmatch(r'result\.phase (==|!=) "(\w+)"', condition)
    assert form is not None
    return (phase == form[2]) == (form[1] == "==")


def flagger_hook(
    service: World, url: str, metadata: dict[str, str], *, phase: str = "Progressing"
) -> tuple[bool, str]:
    """Whether a webhook of Flagger passes, and the body: a POST without a header of ours.

    Every value of `metadata` is a string; a status beyond 202 is a no.
    """
    body = {
        "name": "shop",
        "namespace": "production",
        "phase": phase,
        "checksum": "85d557f47b",
        "metadata": {"key": service.project.keys[KeyKind.PROJECT], **metadata},
    }
    answer = service.client.post(request_target(url), json=body)
    assert answer.headers["Content-Type"].startswith("text/plain"), answer.text
    return answer.status_code <= 202, answer.text


def flagger_webhooks(service: World, commit: str | None) -> dict[str, bool]:
    """Which webhooks of the page's Canary pass, by type; None leaves their commit out."""
    (canary,) = resources("Canary")
    passed: dict[str, bool] = {}
    for hook in canary["spec"]["analysis"]["webhooks"]:
        metadata = {
            name: value for name, value in hook["metadata"].items() if name != "treatment_commit"
        }
        assert metadata.pop("key") == "rk_…"
        assert len(metadata) == len(hook["metadata"]) - 2
        if commit is not None:
            metadata["treatment_commit"] = commit
        passed[hook["type"]], _ = flagger_hook(service, hook["url"], metadata)
    return passed
