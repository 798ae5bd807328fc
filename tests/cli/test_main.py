"""The command line's root knows its commands without importing them."""

import os
import subprocess
import sys
from importlib import import_module

import click
import pytest
from click.testing import CliRunner
from own_postgres.server import EmbeddedPostgresError

from cli.main import COMMANDS, PLAIN_FAULTS, UNREACHABLE, main
from storage.postgres.refusal import Conflict


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; from cli.main import main; main(['--help'], standalone_mode=False); "
        "print('imported', *{'sqlalchemy', 'numpy', 'dagster', 'rich'} & {*sys.modules})"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines()[-1].strip() == "imported"
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert command.name == name
        assert f"  {name} " in shown
        assert str(command.help).splitlines()[0] in shown


def test_commands_that_ask_a_service_load_nothing_of_the_store() -> None:
    code = """
import sys
from cli.main import main
for words in ("explain exp_1", "list", "wait exp_1", "close exp_1", "doctor", "portfolio",
              "register --metric signup", "deploy abcdef1", "withdraw dep_1"):
    try:
        main([*words.split()], standalone_mode=False)
    except Exception as fault:
        print(words.split()[0], fault)
    loaded = {"sqlalchemy", "psycopg", "numpy", "dagster"} & {*sys.modules}
    assert not loaded, (words, loaded)
"""
    address = {"SERVICE_API_URL": "ftp://nowhere", "SERVICE_PROJECT_KEY": "rk_1"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **address},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("SERVICE_API_URL") == 9, ran.stdout


def test_the_api_imports_nothing_that_only_the_pipeline_needs() -> None:
    code = (
        "import sys, api.app, api.server.process, cli.main, cli.processes.parts; print(*{'dagster',"
        " 'pandas', 'scipy', 'duckdb', 'statsmodels', 'numpy', 'pyarrow', 'mcp'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_an_unknown_command_is_named() -> None:
    result = CliRunner().invoke(main, ["upp"])
    assert result.exit_code == 2
    assert "No such command 'upp'. Did you mean 'up'? --help lists all." in result.output


def test_help_shows_no_limit_where_an_option_has_none() -> None:
    result = CliRunner().invoke(main, ["register", "--help"])
    assert (result.exit_code, "--value" in result.output) == (0, True)
    assert "None" not in result.output


@pytest.mark.parametrize(
    "fault",
    [EmbeddedPostgresError("no room on the disk"), Conflict("taken", "no room on the disk")],
)
def test_what_the_store_cannot_do_is_one_plain_line(fault, monkeypatch) -> None:
    @click.command("fail")
    def fail() -> None:
        raise fault

    monkeypatch.setattr(main, "get_command", lambda _context, _name: fail)
    result = CliRunner().invoke(main, ["fail"])
    assert (result.exit_code, result.output) == (1, "Error: no room on the disk\n")


@pytest.mark.parametrize("name", sorted({*PLAIN_FAULTS, UNREACHABLE}))
def test_a_plain_fault_is_named_as_it_is_called(name) -> None:
    module, _, fault = name.rpartition(".")
    result = getattr(import_module(module), fault)
    assert issubclass(result, Exception)
    assert f"{result.__module__}.{result.__qualname__}" == name
