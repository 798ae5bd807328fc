"""Wrong usages of the command line: each answer says what to do."""

from typing import Any

import pytest

from cli.main import COMMANDS, MEANT
from tests.processes.api_process import port_of_our_own

NOBODY = "exp_00000000000000000000"


def message(result: Any) -> str:
    """What was said, on a line as it is meant."""
    return " ".join(result.output.split())


@pytest.mark.parametrize("words", [["deploy", "nothex"], ["register", "--commit", "nothex"]])
def test_a_commit_that_is_none_is_told_where_one_is_found(stored, command, words) -> None:
    result = command(*words, "--project", str(stored.project_id))
    assert result.exit_code == 1
    assert "must be 7 to 64 hexadecimal digits, as `git rev-parse HEAD` prints" in message(result)


@pytest.mark.parametrize("words", [["explain"], ["wait", "--timeout", "0"], ["close"], ["audit"]])
@pytest.mark.usefixtures("stored")
def test_an_unknown_experiment_is_told_where_the_known_ones_are(command, words) -> None:
    result = command(*words, NOBODY)
    assert result.exit_code in (1, 2)
    assert f"there is no experiment {NOBODY} in this store: the dashboard lists" in message(result)
    assert "--data-dir or SERVICE_DATABASE_URL names another store" in message(result)


def test_a_store_without_a_project_is_told_from_a_project_of_another_name(
    store, command, monkeypatch
) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    empty = message(command("settings", "show"))
    assert "the store has no project yet: `deploy-reward project create NAME` makes it" in empty
    assert "--data-dir or SERVICE_DATABASE_URL names another store" in empty
    assert command("project", "create", "shop").exit_code == 0
    other = message(command("settings", "show"))
    assert "there is no project 'default': `deploy-reward project list` names all" in other


@pytest.mark.usefixtures("stored")
def test_a_name_that_is_taken_is_told_how_to_get_a_key_of_that_project(command) -> None:
    again = command("project", "create", "shop")
    assert again.exit_code == 1
    assert "`deploy-reward keys create KIND --project shop`" in message(again)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["deploy", "abcdef1", "--allocation", "10"], "10 % is 0.1"),
        (["deploy", "abcdef1", "--allocation", "2.5%"], "2.5 % is 0.025"),
        (["plan", "--sessions-per-day", "9", "--share", "50", "--rate", "0.1"], "50 % is 0.5"),
        (["plan", "--sessions-per-day", "9", "--share", "0.5", "--rate", "9"], "9 % is 0.09"),
        (["wait", NOBODY, "--accept-harm", "20"], "20 % is 0.2"),
    ],
)
def test_percent_for_a_share_is_told_how_to_write_it(command, words, advice) -> None:
    result = command(*words)
    assert result.exit_code == 2
    assert f"A share is a part of 1: {advice}." in message(result)


@pytest.mark.parametrize(
    ("option", "typed"),
    [
        *[("sessions-per-day", typed) for typed in ("1e300", "1e-300", "nan", "inf")],
        *[(share, typed) for share in ("rate", "share", "alpha") for typed in ("1e-300", "nan")],
        *[("sample-rate", "1e-300"), ("typical-lift", "nan")],
    ],
)
def test_a_number_that_no_canary_has_is_refused_by_its_option(command, option, typed) -> None:
    sane = {"sessions-per-day": "9", "rate": "0.1", "share": "0.5"}
    result = command(
        "plan", *(f"--{name}={text}" for name, text in {**sane, option: typed}.items())
    )
    assert result.exit_code == 2
    assert f"Invalid value for '--{option}'" in message(result)


@pytest.mark.parametrize(
    "words", [["deploy", "abcdef1", "--allocation"], ["register", "--metric=order", "--value"]]
)
def test_a_number_that_is_none_is_refused_by_its_option(command, words) -> None:
    result = command(*words, "nan")
    assert (result.exit_code, f"'{words[-1]}': nan is no number" in message(result)) == (2, True)


@pytest.mark.parametrize("typed", ["-1", "1000", "much"])
def test_what_is_no_percent_either_is_given_no_other_form(command, typed) -> None:
    result = command("deploy", "abcdef1", f"--allocation={typed}")
    assert result.exit_code == 2
    assert "part of 1" not in message(result)


@pytest.mark.parametrize("word", sorted(MEANT))
def test_a_word_for_a_command_names_the_command(command, word) -> None:
    assert word not in COMMANDS
    result = command(word)
    assert result.exit_code == 2
    for name in MEANT[word]:
        assert name in COMMANDS
        assert f"'{name}'" in message(result)


class TestSimulate:
    def test_says_at_once_where_nothing_answers(self, command) -> None:
        with port_of_our_own() as port:
            address = f"http://127.0.0.1:{port}"
            result = command("simulate", "--api-url", address, "--key", "wk_1")
        assert result.exit_code == 1
        assert f"no service answers at {address}: start it with `deploy-reward up`" in message(
            result
        )
        assert "--api-url or SERVICE_API_URL" in message(result)

    @pytest.mark.parametrize("key", ["wk_nonsense", "nonsense"])
    @pytest.mark.usefixtures("served")
    def test_names_the_key_that_it_needs(self, command, key) -> None:
        result = command("simulate", "--deploys", "--hours", "1", "--key", key)
        assert result.exit_code == 1
        assert "the key must be the project's write key, wk_…" in message(result)
        assert key not in result.output

    @pytest.mark.parametrize("step", ["0:0.01", "-1:0.5"])
    def test_has_a_ramp_begin_with_its_share(self, command, step) -> None:
        result = command("simulate", "--key", "wk_1", "--ramp", step)
        assert result.exit_code == 2
        assert "a step comes after the start, at which --share holds" in message(result)
