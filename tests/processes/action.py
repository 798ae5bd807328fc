"""A composite action, run as a runner of GitHub runs it: its own steps, in real shells."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ACTIONS = Path(__file__).parents[2] / ".github" / "actions"
# As a runner starts the shell `bash`.
_SHELL = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c")
_EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")


@dataclass(frozen=True, kw_only=True)
class ActionRun:
    """How a run of an action ended; `code` is that of the step that failed, 0 where none did."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str
    artifacts: dict[str, str]


def run_action(
    name: str,
    inputs: Mapping[str, str],
    *,
    event: Any,
    environment: Mapping[str, str],
    token: str,
    folder: Path,
) -> ActionRun:
    """Runs an action of this repository with inputs, all that it requires among them."""
    action = yaml.safe_load((ACTIONS / name / "action.yml").read_text())
    unknown = inputs.keys() - action["inputs"].keys()
    missing = {key for key, of in action["inputs"].items() if of.get("required")} - inputs.keys()
    if unknown or missing:
        raise ValueError(f"unknown inputs: {unknown}, missing ones: {missing}")
    values = {"github.token": token}
    for key, of in action["inputs"].items():
        values[f"inputs.{key}"] = inputs.get(key, _filled(of.get("default", ""), values))
    files = {
        variable: folder / f"{variable.lower()}.txt"
        for variable in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_EVENT_PATH")
    }
    files["GITHUB_EVENT_PATH"].write_text(json.dumps(event))
    files["GITHUB_STEP_SUMMARY"].write_text("")
    log, code, artifacts = "", 0, dict[str, str]()
    for step in action["runs"]["steps"]:
        if "uses" in step:
            # The only action of others in ours: it keeps a folder, where there is any.
            assert step["uses"].startswith("actions/upload-artifact@")
            kept = _filled(step["with"]["path"], values)
            artifacts = (
                {each.name: each.read_text() for each in Path(kept).iterdir()} if kept else {}
            )
            continue
        if code:
            continue
        files["GITHUB_OUTPUT"].write_text("")
        done = subprocess.run(
            [*_SHELL, _filled(step["run"], values)],
            cwd=folder,
            env={
                **environment,
                **{variable: str(file) for variable, file in files.items()},
                "GITHUB_ACTION_PATH": str(ACTIONS / name),
                **{key: _filled(value, values) for key, value in step.get("env", {}).items()},
            },
            capture_output=True,
            text=True,
            check=False,
        )
        log += done.stdout + done.stderr
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            key, _, value = line.partition("=")
            values[f"steps.{step['id']}.outputs.{key}"] = value
        code = done.returncode
    return ActionRun(
        code=code,
        log=log,
        outputs={
            key: _filled(of["value"], values) for key, of in action.get("outputs", {}).items()
        },
        summary=files["GITHUB_STEP_SUMMARY"].read_text(),
        artifacts=artifacts,
    )


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its expressions; an output that was not set is empty, anything else a fault."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return values.get(name, "") if name.startswith("steps.") else values[name]

    return _EXPRESSION.sub(value, text)


def runner_path(programs: Path, **scripts: str) -> str:
    """A PATH whose first folder holds programs of these scripts."""
    programs.mkdir(exist_ok=True)
    for name, script in scripts.items():
        program = programs / name.replace("_", "-")
        program.write_text(f"#!/bin/bash\n{script}\n")
        program.chmod(0o755)
    return f"{programs}{os.pathsep}{os.environ['PATH']}"
