"""The recipe of docs/many-changes.md, run by a shell in a real repository against a running API."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving
from tests.conftest import Service
from tests.processes.action import runner_path

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not all(map(shutil.which, ("bash", "curl", "git", "jq"))),
        reason="bash, curl, git or jq is not here",
    ),
]

PAGE = (Path(__file__).parents[2] / "docs" / "many-changes.md").read_text()
(RECIPE,) = re.findall(r"^```sh\n(registration=.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def service(tenant: Service) -> Service:
    """A project of the test's own."""
    return tenant


class Repository:
    """A team's repository: a trunk, and a branch for each canary."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Ada")
        self.git("config", "user.email", "ada@shop.example")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, file: str, *, on: str | None = None) -> str:
        """Commits a file, on a commit or on nothing, and returns the commit."""
        if on is not None:
            self.git("checkout", "--quiet", on)
        (self.folder / file).write_text(file)
        self.git("add", file)
        self.git("commit", "--quiet", "--message", f"Add {file}")
        return self.git("rev-parse", "HEAD")


def test_the_recipe_rebases_a_canary_whose_base_moved_and_its_experiment_goes_on(
    service: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    repository = Repository(folder)
    base = repository.commit("shop")
    first, second = (repository.commit(name, on=base) for name in ("cart", "search"))

    def deployed(sha: str, **members: Any) -> None:
        assert service.post("/v1/deploys", {"commit": {"sha": sha}, **members}).status_code == 201

    deployed(base)
    for canary in (first, second):
        deployed(canary, allocation=0.1, diff={"base_commit": base})
    body = {"treatment_commit": second, "target_metric": "activation"}
    experiment = service.post("/v1/reward/register", body).json()["experiment_id"]
    deployed(first, allocation=1)

    def registration() -> Any:
        return service.get(f"/v1/reward/{experiment}/registration").json()

    assert registration()["base_moved"]["rebase_on"] == first
    for name in ("canary", "roll-back"):
        script = folder / f"{name}.sh"
        script.write_text(f'#!/bin/bash\necho {name} "$@" >> {tmp_path}/router.log\n')
        script.chmod(0o755)
    path = runner_path(tmp_path / "bin", **{"deploy-reward": f'exec {sys.executable} -m cli "$@"'})
    with serving(service) as url:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", RECIPE],
            cwd=folder,
            env={
                "PATH": path,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "SERVICE_API_URL": url,
                "EXPERIMENT": experiment,
                "PROJECT_KEY": service.project.keys[KeyKind.PROJECT],
                "WRITE_KEY": service.project.keys[KeyKind.WRITE],
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    rebased = repository.git("rev-parse", "HEAD")
    assert repository.git("rev-parse", "HEAD~1") == first
    steps = {
        (deploy["commit"]["sha"], deploy["allocation"])
        for deploy in service.get("/v1/deploys").json()["deploys"]
    }
    assert {(rebased, 0.1), (second, 0.0)} <= steps
    assert registration()["base_moved"] is None
    assert (tmp_path / "router.log").read_text() == f"canary {rebased} 0.1\nroll-back {second}\n"
    # The same change on another base: registered again it is the same experiment.
    again = service.post("/v1/reward/register", {**body, "treatment_commit": rebased})
    assert again.json()["experiment_id"] == experiment
