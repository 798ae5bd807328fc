"""What a team runs by: alerts on metrics that exist, a runbook, files that can be started."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import click
import dagster as dg
import kubernetes_validate
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from storage.postgres.dagster_schema import create_dagster_schema, dagster_url
from storage.upkeep.check_results import note_check
from storage.upkeep.ticks import note_step
from tests.processes.api_process import eventually

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs/operations"
DEPLOYMENT = DOCS / "deployment"
UNITS = sorted(DEPLOYMENT.glob("systemd/*.service"))

# Prometheus's own words in expressions, and labels by which ours are grouped.
METRIC = re.compile(r"\b(deploy_reward_\w+)(?:\{([^}]*)\})?")
RECORDED = re.compile(r"\bdeploy_reward:\w+")


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((DOCS / "alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


@pytest.fixture
def exported(service) -> dict[str, set[str]]:
    """The labels of each metric that a service with traffic tells."""
    service.post("/v1/deploys", {"commit": {"sha": "a" * 40}})
    event = {"event": "page_view", "session_id": "s", "commit": "a" * 40}
    assert service.post("/v1/events", event).status_code == 202
    # Its policy waits for the pipeline.
    service.register(target_metric="activation")
    service.in_store(lambda c: note_step(c, stage="verdicts", seconds=1.0))
    service.in_store(lambda c: note_check(c, name="running_p_never_rose", passed=True))
    create_dagster_schema(service.store.url)
    kept = {"postgres": {"postgres_url": dagster_url(service.store.url)}}
    with dg.instance_for_test(overrides={"storage": kept}) as instance:
        assert instance.get_runs() == []
    labels: dict[str, set[str]] = {}
    # On a machine that is busy the store may take longer than is waited for.
    up = "\ndeploy_reward_store_up 1.0\n"
    page = eventually(lambda: up in (page := service.client.get("/metrics").text) and page)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def test_every_metric_that_an_alert_asks_for_is_told_with_its_labels(exported) -> None:
    for rule in rules():
        for name, matchers in METRIC.findall(rule["expr"]):
            assert name in exported, rule
            assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= exported[name], rule


def test_every_metric_that_the_dashboard_of_grafana_draws_is_told_with_its_labels(exported) -> None:
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    drawn = [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    assert len(drawn) >= len(dashboard["panels"])
    for title, expression, legend in drawn:
        names = [name for name, _ in METRIC.findall(expression)]
        assert names, title
        grouped = re.findall(r"by \((\w+)\)", expression)
        for name in names:
            assert name in exported, title
            # `job` is Prometheus's own.
            assert set(grouped) - {"job"} <= exported[name], title
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= set(grouped), title


def test_every_metric_that_the_pages_name_is_told(exported) -> None:
    for path in DOCS.glob("*.md"):
        for name in re.findall(
            r"\bdeploy_reward_\w+_(?:seconds|bytes|total|ratio)\b", path.read_text()
        ):
            assert name in exported, (path.name, name)


def test_what_an_alert_compares_with_is_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert {name for rule in rules() for name in RECORDED.findall(rule["expr"])} == recorded


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    page = (DOCS / "runbook.md").read_text()
    sections = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert sections == [alert["alert"] for alert in alerts()]
    assert re.findall(r"^\| \[(\w+)\]", page, re.MULTILINE) == sections
    for alert in alerts():
        assert (
            alert["annotations"]["runbook"]
            == f"docs/operations/runbook.md#{alert['alert'].lower()}"
        )
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert alert["annotations"]["summary"]
        section = page.split(f"### {alert['alert']}\n")[1].split("\n### ")[0]
        assert re.findall(r"^\*\*(\w+)\*\*", section, re.MULTILINE) == ["Means", "First", "Wake"]


# --- Files that are started -------------------------------------------------------------------

# Where the command of each name stands.
_COMMANDS = {
    "deploy-reward": ("cli.main", "main"),
    "dagster": ("dagster._cli", "create_dagster_cli"),
    "dagster-daemon": ("dagster._daemon.cli", "create_dagster_daemon_cli"),
    # Hands its words on.
    "orchestration.daemon": ("dagster._daemon.cli", "create_dagster_daemon_cli"),
    "orchestration.web_server": ("dagster_webserver.cli", "create_dagster_webserver_cli"),
}


def parse(words: list[str]) -> None:
    """Reads a command line as its command does, and stops there."""
    if Path(words[0]).name == "python":
        words = words[words.index("-m") + 1 :]
    module, name = _COMMANDS[Path(words[0]).name]
    command: Any = getattr(import_module(module), name)
    if not isinstance(command, click.Command):
        command = command()
    # Read when it is parsed already.
    workspace = str(DEPLOYMENT / "systemd/workspace.yaml")
    context = None
    arguments = [re.sub("^/etc/.*/workspace.yaml$", workspace, word) for word in words[1:]]
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context)
        result = command.get_command(context, arguments.pop(0))
        assert result is not None, words
        command = result
    command.make_context(words[0], arguments, parent=context)


def unit_command(path: Path) -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.+)$", path.read_text(), re.MULTILINE)
    return shlex.split(line)


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOYMENT / "compose/compose.yaml").read_text())


def compose_commands() -> Iterator[list[str]]:
    for service in compose()["services"].values():
        if "command" in service:
            yield service["command"]
        test = service.get("healthcheck", {}).get("test", ["CMD", "pg_isready"])[1:]
        if test[0] in _COMMANDS:
            yield test


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_start_commands_that_exist(path) -> None:
    parse(unit_command(path))


def test_containers_start_commands_that_exist() -> None:
    commands = list(compose_commands())
    assert len(commands) == 7
    for words in commands:
        parse(words)


def test_containers_and_units_run_the_same_parts() -> None:
    services = compose()["services"]
    ours = {name for name, service in services.items() if service["image"] == "deploy-reward"}
    assert ours == {"migrate", *(path.stem.removeprefix("deploy-reward-") for path in UNITS)}
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)


def test_units_wait_for_units_that_exist() -> None:
    target = (DEPLOYMENT / "systemd/deploy-reward-dagster.target").read_text()
    names = {path.name for path in DEPLOYMENT.glob("systemd/*")}
    for text in (target, *(path.read_text() for path in UNITS)):
        assert set(re.findall(r"deploy-reward-\w+\.(?:service|target)", text)) <= names


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units(tmp_path) -> None:
    for path in DEPLOYMENT.glob("systemd/deploy-reward-*"):
        # What they start must exist, and does here under another name.
        text = path.read_text().replace("/opt/deploy-reward/bin", str(Path(sys.executable).parent))
        (tmp_path / path.name).write_text(text)
    run = subprocess.run(
        ["systemd-analyze", "verify", *tmp_path.iterdir()],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_the_image_is_built_from_what_the_package_needs_alone(tmp_path) -> None:
    admitted = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    for name in admitted:
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    dockerfile = (DEPLOYMENT / "compose/Dockerfile").read_text()
    for copied in re.findall(r"^COPY (?!--from)(\S+)", dockerfile, re.MULTILINE):
        assert (tmp_path / copied).exists(), copied
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheel, "--wheel-dir", tmp_path / "wheel", tmp_path], check=True)
    (built,) = (tmp_path / "wheel").iterdir()
    with ZipFile(built) as archive:
        packed = set(archive.namelist())
    missing = {
        str(path.relative_to(ROOT))
        for room in ("api", "cli", "domain", "mcp_server", "orchestration", "stats", "storage")
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } - packed
    assert missing == set()
    assert {
        f"api/programs/static/{name}" for name in ("route_graph.py", "route-graph.mjs")
    } <= packed


# --- Kubernetes ----------------------------------------------------------------------------------

WITH_KUBECTL = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
KUSTOMIZATIONS = {"production": DEPLOYMENT, "trial": DEPLOYMENT / "kubernetes" / "trial"}


def rendered(name: str) -> list[dict[str, Any]]:
    """The manifests as kubectl would apply them."""
    done = subprocess.run(
        ["kubectl", "kustomize", KUSTOMIZATIONS[name]], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def pods(name: str) -> dict[str, dict[str, Any]]:
    """The specification of each pod, by the name of what makes it."""
    return {
        manifest["metadata"]["name"]: manifest["spec"]["template"]["spec"]
        for manifest in rendered(name)
        if "template" in manifest.get("spec", {})
    }


@WITH_KUBECTL
@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_the_manifests_hold_to_the_schemas_of_kubernetes(name) -> None:
    for manifest in rendered(name):
        kubernetes_validate.validate(manifest, "1.32", strict=True)


@WITH_KUBECTL
@pytest.mark.parametrize("name", KUSTOMIZATIONS)
def test_a_pod_has_no_right_and_writes_to_no_root(name) -> None:
    for made_by, pod in pods(name).items():
        assert pod["automountServiceAccountToken"] is False, made_by
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert (
            f"USER {pod['securityContext']['runAsUser']}:"
            in (DEPLOYMENT / "compose/Dockerfile").read_text()
        )
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert {"/tmp"} <= {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108


@WITH_KUBECTL
def test_a_cluster_runs_the_parts_that_containers_run_by_the_same_commands() -> None:
    services = compose()["services"]
    for made_by, pod in pods("production").items():
        (container,) = pod["containers"]
        part = made_by.partition("-0")[0]
        same = [word for word in services[part]["command"] if not word.isdecimal()]
        assert [word for word in container["command"] if not word.isdecimal()] == same
        parse(container["command"])
    (trial,) = pods("trial").values()
    parse(trial["containers"][0]["command"])


@pytest.mark.parametrize("folder", ["systemd", "compose"])
def test_the_workspace_names_where_the_code_server_listens(folder) -> None:
    workspace = yaml.safe_load((DEPLOYMENT / folder / "workspace.yaml").read_text())
    (server,) = [each["grpc_server"] for each in workspace["load_from"]]
    if folder == "systemd":
        words = unit_command(DEPLOYMENT / "systemd/deploy-reward-code.service")
        assert words[words.index("--host") + 1] == server["host"]
    else:
        words = compose()["services"][server["host"]]["command"]
    assert words[words.index("--port") + 1] == str(server["port"])
    assert words[words.index("--location-name") + 1] == server["location_name"]


def test_launchers_are_added_to_the_instance_and_take_nothing_away() -> None:
    instance = yaml.safe_load((DEPLOYMENT / "dagster.yaml").read_text())
    for path in DEPLOYMENT.glob("launchers/*.yaml"):
        added = yaml.safe_load(path.read_text())
        assert added.keys() == {"run_launcher"}
        assert not added.keys() & instance.keys()
        assert added["run_launcher"].keys() == {"module", "class", "config"}


def test_the_files_name_variables_that_there_are() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    written = set(re.findall(r"^\| `([A-Z_]+)` \|", pages, re.MULTILINE))
    lines = (DEPLOYMENT / "service.env").read_text().splitlines()
    assert {line.partition("=")[0] for line in lines if not line.startswith("#")} <= written
    for service in compose()["services"].values():
        if service["image"] == "deploy-reward":
            assert service["environment"].keys() <= written
