"""Verdict contracts as a table: what the next command takes stands there whole."""

from typing import Any

import pytest


def test_an_experiment_is_named_whole_on_a_narrow_terminal(
    stored: Any, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stored.post("/v1/deploys", {"commit": {"sha": "a" * 8}})
    stored.post("/v1/deploys", {"commit": {"sha": "b" * 8}, "allocation": 0.1})
    experiment = stored.post("/v1/reward/register", {}).json()["experiment_id"]
    result = command("rebuild")
    assert result.exit_code == 0, result.output
    assert experiment in result.stdout
