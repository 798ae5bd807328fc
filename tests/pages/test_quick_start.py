"""Who follows docs/quick-start.md to its end has a decided verdict, and saw what the page says."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from cli.main import main
from cli.processes.up import KEY_USES
from tests.cli.conftest import serving
from tests.processes.terminal import has_tools, terminal

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not has_tools(), reason="bash or curl is not here"),
]

PAGE = (Path(__file__).parents[2] / "docs" / "quick-start.md").read_text()
KEY = r"(?:wk|pk|rk)_"


class Step(NamedTuple):
    """A block of commands, and what a reader sees of it."""

    commands: str
    seen: str
    exits: int


def steps() -> list[Step]:
    """The page's shell blocks in their order, without the block that installs and runs `up`."""
    result: list[Step] = []
    for part in PAGE.split("\n```sh\n")[2:]:
        commands, after = part.split("\n```\n", 1)
        seen = re.match(r"\n```text\n(.*?)\n```\n", after, re.DOTALL)
        exits = re.search(r"It exits\s+with (\d+)", after)
        result.append(Step(commands, seen[1] if seen else "", int(exits[1]) if exits else 0))
    return result


def masked(line: str) -> str:
    """A line without what differs from run to run: ids, keys, figures and a table's padding."""
    line = re.sub(rf"\b(dep_|exp_|in_|{KEY})(?:[\w-]+|…)", r"\1", line)
    line = re.sub(r"\d+(?:[.,:]\d+)*", "0", line)
    return re.sub(r"[\s│]+", " ", line.replace("-0", "+0")).strip()


def handed_over(commands: str, keys: dict[str, str]) -> str:
    """The commands with a reader's own keys in place of `wk_…` and its like."""
    return re.sub(rf"({KEY})…", lambda kind: keys[kind[1]], commands)


def read(service: Any, path: str, key: str) -> Any:
    return service.client.get(path, headers={"X-Service-Project-Key": key}).json()


def printed_keys(text: str) -> dict[str, str]:
    return {key[:3]: key for key in re.findall(rf"{KEY}\w{{40}}", text)}


def test_the_quick_start_leads_to_a_decided_verdict(service, tmp_path, monkeypatch) -> None:
    # As `up` makes it.
    first = printed_keys(" ".join(service.new_project("default").keys.values()))
    keys = dict(first)
    monkeypatch.chdir(tmp_path)
    with (
        serving(service) as url,
        terminal(tmp_path, SERVICE_DATABASE_URL=service.store.url) as shell,
    ):
        for step in steps():
            commands = handed_over(step.commands, keys).replace("http://127.0.0.1:8000", url)
            seen = shell.type(commands)
            assert seen.exit == step.exits, seen.text
            came = [masked(line) for line in seen.text.splitlines()]
            for line in filter(None, map(masked, step.seen.splitlines())):
                assert any(each.startswith(line) for each in came), f"{line!r} not in {seen.text}"
        keys |= printed_keys(shell.type("echo $SERVICE_PROJECT_KEY").text)

    assert keys["rk_"] != first["rk_"]
    (rehearsed,) = read(service, "/v1/reward", keys["rk_"])["experiments"]
    assert rehearsed["contract"]["verdict"] == "keep"
    # And the reader's own project is wired right, as far as four events can show.
    lines = read(service, "/v1/reward/checklist", first["rk_"])
    assert not [line for line in lines if line["ok"] is False]
    answer = {line["check"] for line in lines if line["ok"]}
    assert answer >= {"events", "commit on events", "commit known", "routes matched", "target seen"}
    deploy = read(service, "/v1/deploys/last", first["wk_"])["deploy"]
    assert deploy["affected_routes"] == ["/checkout/[id]"]


def test_the_plan_has_the_figures_that_the_command_prints() -> None:
    (step,) = [step for step in steps() if step.commands.startswith("deploy-reward plan ")]
    printed = CliRunner().invoke(main, step.commands.split()[1:]).output
    lines = {" ".join(line.split()) for line in printed.splitlines()}
    assert {" ".join(line.split()) for line in step.seen.splitlines()} <= lines


def test_the_keys_are_shown_as_up_shows_them() -> None:
    shown = PAGE.split("```text\n")[1].split("```")[0]
    for kind, use in KEY_USES.items():
        assert re.search(rf"^  {kind.value} +\w\w_…   {re.escape(use)}$", shown, re.MULTILINE)
