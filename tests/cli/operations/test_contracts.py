"""Verdict contracts as a table: what the next command takes stands there whole."""

import json

import pytest

from storage.tenants.projects import list_projects
from tests.pipeline.engines.test_engines import END, built
from tests.repetition import also_nightly


def test_an_experiment_is_named_whole_on_a_narrow_terminal(stored, command, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stored.deploy("a" * 8)
    stored.deploy("b" * 8, 0.1)
    experiment = stored.register()
    result = command("rebuild")
    assert result.exit_code == 0, result.output
    assert experiment in result.stdout


@pytest.mark.parametrize(
    "when", also_nightly([()], [["--as-of", END.isoformat()]]), ids=["now", "as of a time"]
)
def test_of_one_project_its_verdicts_alone_are_printed(store, command, monkeypatch, when) -> None:
    built(store, [0, 1])
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)

    def printed(*words: str) -> list[str]:
        result = command("evaluate", *when, "--json", *words)
        # Of Dagster's own log nothing: a person reads verdicts here.
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return [contract["experiment_id"] for contract in json.loads(result.stdout)]

    with store.engine.connect() as connection:
        names = [project.name for project in list_projects(connection)]
    first, *others = [set(printed("--project", name)) for name in names]
    assert first
    assert not first.intersection(*others)
    assert first.union(*others) == set(printed())
    unknown = command("evaluate", *when, "--project", "nobody's")
    assert unknown.exit_code == 1
    assert "there is no project" in unknown.stderr
