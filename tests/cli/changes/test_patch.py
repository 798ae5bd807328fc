"""The identity of a patch is the same whatever the settings of the person who asks git."""

import subprocess

import pytest

from cli.changes.patch import patch_id


@pytest.mark.parametrize(
    "setting", ["diff.noprefix=true", "diff.context=9", "color.ui=always", "diff.external=true"]
)
def test_settings_of_git_do_not_change_the_identity(tmp_path, monkeypatch, setting) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.com")
    subprocess.run(["git", "init", "--quiet"], check=True)
    source = tmp_path / "cart.py"
    for number in (3, 7):
        lines = [f"line_{line} = {line}" for line in range(20)]
        source.write_text("\n".join([*lines[:10], f"price = {number}", *lines[10:]]))
        subprocess.run(["git", "add", "."], check=True)
        subprocess.run(["git", "commit", "--quiet", "--message", "a price"], check=True)
    before = patch_id("HEAD", base=None)
    subprocess.run(["git", "config", *setting.split("=")], check=True)
    assert before is not None
    assert patch_id("HEAD", base=None) == before == patch_id("HEAD", base="HEAD^")
