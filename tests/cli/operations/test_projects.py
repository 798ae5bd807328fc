"""`project create`: the keys as a table, as JSON, or as lines for a shell."""

import json
import subprocess

import pytest


def test_exported_keys_are_those_of_the_shell_that_evaluates_them(command, stored) -> None:
    lines = command("project", "create", "rehearsal", "--export").stdout
    names = ("WRITE_KEY", "PUBLIC_KEY", "PROJECT_KEY", "SERVICE_PROJECT_KEY")
    shown = " ".join(f"${name}" for name in names)
    write, public, project, commands_read = subprocess.run(
        ["sh", "-c", f"{lines}\necho {shown}"], capture_output=True, text=True, check=True, env={}
    ).stdout.split()
    assert project == commands_read
    for key, path in ((write, "/v1/deploys"), (project, "/v1/reward")):
        answer = stored.client.get(path, headers={"X-Service-Project-Key": key})
        assert answer.status_code == 200
    assert public.startswith("pk_")
    # Of the new project, which has nothing yet.
    assert answer.json()["experiments"] == []


@pytest.mark.usefixtures("stored")
def test_one_form_is_printed(command) -> None:
    result = command("project", "create", "rehearsal", "--export", "--json")
    assert result.exit_code == 2
    assert "either --export or --json" in result.output
    listed = json.loads(command("project", "list", "--json").stdout)
    assert "rehearsal" not in [row["name"] for row in listed]
