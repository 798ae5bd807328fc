"""Settings of the engine that computes whole days: what cannot be used is said in a sentence."""

import socket
import sys
from typing import Any

import pytest

from benchmarks.days.spark_cluster import free_port
from tests.pipeline.engines.test_engines import END, built

AS_OF = ("evaluate", "--as-of", END.isoformat(), "--json")
SENT = "held-by-the-address"


@pytest.fixture
def refused(command, store, monkeypatch) -> Any:
    """Returns what a computation of whole days ends with, in a line."""
    built(store, [0])

    def run(**variables: str) -> str:
        monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        result = command(*AS_OF)
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) == 1
        return result.stderr

    return run


NO_ADDRESS = "SERVICE_SPARK_REMOTE is no address of a Spark Connect server, such as sc://"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SERVICE_ENGINE": "flink"}, "SERVICE_ENGINE is 'flink': it must be duckdb or spark"),
        (
            {"SERVICE_ENGINE_MEMORY_MIB": "1 GiB"},
            "SERVICE_ENGINE_MEMORY_MIB is '1 GiB': it must be a positive whole number",
        ),
        (
            {"SERVICE_ENGINE": "spark"},
            "SERVICE_SPARK_REMOTE is not set: name a Spark Connect server",
        ),
        *(
            (
                {"SERVICE_ENGINE": "spark", "SERVICE_SPARK_REMOTE": f"{kind}/;token={SENT}"},
                NO_ADDRESS,
            )
            for kind in ("http://spark.example", "sc://", "spark.example:15002")
        ),
    ],
)
def test_what_no_engine_can_be_is_refused_by_its_variable_and_no_token_is_shown(
    refused, variables, message
) -> None:
    answer = refused(**variables)
    assert message in answer
    assert SENT not in answer


def test_a_server_that_does_not_answer_is_named_without_its_token(refused) -> None:
    port = free_port()
    remote = f"sc://127.0.0.1:{port}/;token={SENT}"
    message = refused(SERVICE_ENGINE="spark", SERVICE_SPARK_REMOTE=remote)
    assert f"no Spark Connect server answers at 127.0.0.1:{port}" in message
    assert SENT not in message


def test_without_the_extra_it_says_what_to_install(refused, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        remote = f"sc://127.0.0.1:{listening.getsockname()[1]}"
        message = refused(SERVICE_ENGINE="spark", SERVICE_SPARK_REMOTE=remote)
    assert "install deploy-reward[spark], or set SERVICE_ENGINE to duckdb" in message
