"""The commands that pages show can be typed, or it stands here why they are not."""

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from storage.tenants.keys import KeyKind
from tests.cli.changes.test_wait import ABSTAIN, evidence, published
from tests.cli.conftest import serving
from tests.clients.page import DOCS, blocks, page
from tests.processes.terminal import has_tools, terminal

ROOT = Path(__file__).parents[2]
BASE, SHA = "a1b2c3d", "e4f5a6b"

# By page, and by the first words of the block.
RUN_ELSEWHERE = {
    ("docs/operations/scale.md", "wrk -t2"): "tests/pages/test_capacity.py",
    ("docs/checklist.md", "deploy-reward doctor"): "tests/cli/operations/test_doctor.py",
    ("docs/ci.md", "# BASE and SHA"): "examples/tests/test_ci.py",
    ("docs/concepts.md", "deploy-reward plan"): "tests/pages/test_concepts.py",
    ("docs/many-changes.md", "python -m benchm"): "benchmarks/calibration/tests/test_repository.py",
    ("docs/many-changes.md", "registration="): "examples/tests/test_many_changes.py",
    ("docs/ci.md", "curl -sSfO"): "packages/route-graph/tests/test_next.py",
    ("docs/operations/keeping.md", "pg_dump"): "tests/reliability/test_restores.py",
    ("docs/import.md", "SERVICE_PROJECT_KEY"): "tests/cli/test_outcomes.py",
    ("docs/import.md", "dbt run"): "tests/cli/test_outcomes.py",
    ("docs/quick-start.md", ""): "tests/pages/test_quick_start.py",
    ("docs/opentelemetry.md", "npm install"): "benchmarks/outside/test_frameworks.py",
}
NOT_RUN = {
    (
        "docs/operations/scale.md",
        "k6 run",
    ): "wants k6; tests/pages/test_capacity.py runs its script",
    ("docs/ci.md", "pipx install"): "fetches the client from the reader's own repository",
    ("docs/many-changes.md", "./canary.sh"): "moves the reader's own traffic",
    ("docs/mcp.md", "claude mcp add"): "wants the client, and somebody's account",
    ("docs/mcp.md", "npx @modelcontextprotocol"): "fetches the inspector from a package registry",
    ("docs/operations/scale.md", "python -m"): "takes minutes, and wants the machine for itself",
    ("docs/operations/dagster.md", "cd /var/lib"): "wants a host's instance; see test_guest.py",
    ("docs/operations/keeping.md", "pip install"): "installs from a package index",
    ("docs/operations/README.md", "useradd"): "wants root, and systemd",
    ("docs/operations/README.md", "cd docs/operations/deployment\nkubectl"): "wants a cluster",
    ("docs/operations/README.md", "docker build"): "wants Docker",
    ("docs/operations/scale.md", "sbin/start"): "wants a cluster; see test_spark_schedules.py",
    ("docs/speed.md", "python -m"): "takes minutes, and wants the machine for itself",
    ("docs/routing.md", "shop="): "asks the reader's own shop",
}
# Pages whose commands speak to a service elsewhere.
FROM_AFAR = {"docs/skill/SKILL.md"}
# Lines that would stay: both servers are started for real by tests/cli/processes/test_up.py.
STAYS = re.compile(r"^deploy-reward (api|dagster)\b.*\n", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Commands that a page shows together."""

    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text[:30].splitlines()[0]}"

    @property
    def is_run_here(self) -> bool:
        return not any(self.is_named(*name) for name in (*RUN_ELSEWHERE, *NOT_RUN))

    def is_named(self, page: str, begins: str) -> bool:
        return self.page == page and self.text.startswith(begins)


def shown() -> list[Block]:
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [
        Block(page=str(path.relative_to(ROOT)), text=dedent(text))
        for path in pages
        # Those of a list are indented.
        for _, text in re.findall(
            r"^( *)```(?:sh|bash|shell)\n(.*?)^\1```$", path.read_text(), re.DOTALL | re.MULTILINE
        )
    ]


def test_what_is_not_run_here_is_shown_somewhere_and_run_where_it_is_said() -> None:
    blocks = shown()
    for name in (*RUN_ELSEWHERE, *NOT_RUN):
        assert any(block.is_named(*name) for block in blocks), name
    for (place, _), test in RUN_ELSEWHERE.items():
        assert (ROOT / test).exists(), place


@pytest.mark.process
@pytest.mark.skipif(not has_tools("jq"), reason="bash, curl or jq is not here")
@pytest.mark.parametrize("block", [each for each in shown() if each.is_run_here], ids=str)
def test_a_block_of_commands_can_be_typed(service, tmp_path, monkeypatch, block) -> None:
    service.new_project("default")
    keys = service.project.keys
    for sha in (BASE, SHA):
        service.deploy(sha)
    experiment = service.register(treatment_commit=SHA, target_metric="activation")
    published(service, experiment, ABSTAIN, evidence(not_worse_than=-0.1))
    for name, file in (
        ("public-key.md", "signed"),
        ("rollouts.md", "webhooks"),
        ("agents-as-subjects.md", "settings"),
    ):
        (tmp_path / f"{file}.toml").write_text(blocks(page(name), "toml")[0])

    monkeypatch.chdir(tmp_path)
    with serving(service) as url:
        # The reader's own.
        text = STAYS.sub("", block.text)
        for theirs, ours in (
            ("https://reward.example", url),
            ("localhost:8000", url),
            ("postgresql://reward:password@db.internal/reward", service.store.url),
            ("project create shop", "project create another-shop"),
            ("wk_g1DJB", keys[KeyKind.WRITE][:8]),
            ("curl -s ", "curl --fail --silent --show-error "),
        ):
            text = text.replace(theirs, ours)
        environment = {
            "SERVICE_DATABASE_URL": service.store.url,
            "SERVICE_DATA_DIR": str(tmp_path / "data"),
            "SERVICE_SECRET": "a secret of the tests, long enough",
            "WRITE_KEY": keys[KeyKind.WRITE],
            "PUBLIC_KEY": keys[KeyKind.PUBLIC],
            "PROJECT_KEY": keys[KeyKind.PROJECT],
            "SHA": SHA,
            "BASE": BASE,
            "AGENT": "agent-7",
            "RUN": "17",
            "EXPERIMENT": experiment,
            "EXPERIMENT_ID": experiment,
        }
        if block.page in FROM_AFAR or "simulate" in text or "$SERVICE_API_URL" in text:
            deploys = text.startswith("deploy-reward deploy ")
            environment["SERVICE_API_URL"] = url
            environment["SERVICE_PROJECT_KEY"] = keys[KeyKind.WRITE if deploys else KeyKind.PROJECT]
        with terminal(tmp_path, **environment) as shell:
            seen = shell.type(text)
    assert seen.exit == 0, seen.text
