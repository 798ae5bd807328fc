"""`wait`: a gate for CI, each of whose exit codes has a meaning."""

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.changes.outcome import FIRST_LOOK_SECONDS, Exit, Poll, outcome
from cli.changes.wait import pause
from domain.contract import contract
from storage.releases.freeze import freeze, unfreeze
from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving
from tests.stores.example import example_document, example_evidence
from tests.stores.publication import publish

pytestmark = pytest.mark.shared_store

FOUND = {"lift": 0.1, "confidence": 0.99, "ci": (0.05, 0.15), "cadence": "fast"}
ABSTAIN = {"verdict": "abstain", "abstain_reason": "power", "decided": False}
ENDED = {**ABSTAIN, "decided": True}
BREACHED = {"guardrail_breaches": ["error"]}
SHORT = {"guardrail_breaches": ["arrival"]}
STEADY = {"shortfall": {"declared": 0.5, "seen": 0.35, "steady": True}}
FELL = {"shortfall": {"declared": 0.5, "seen": 0.35, "steady": False}}
ALIASED = {"abstain_reason": "non_identifiable"}


def evidence(**members: Any) -> dict[str, Any]:
    """An evidence document, as far as the gate reads it."""
    units = members.pop("in_cells", 5000)
    policy = {"target": {"better": members.pop("better", "higher")}, "futility_margin": 0.01}
    known = {"not_worse_than": members.pop("not_worse_than", None)}
    return example_document(
        **{
            **dict.fromkeys(("sentence", "reason"), "What is known."),
            "policy": policy,
            "known": known,
            "counts": {"in_cells": units, "open": 0},
            "sessions": {"accumulated": units},
            **members,
        }
    )


def registered(service: Any) -> str:
    for sha in ("aaaaaaa", "bbbbbbb"):
        service.deploy(sha)
    experiment_id = service.register()
    service.freeze()
    return experiment_id


def published(service: Any, experiment_id: str, answer: dict[str, Any], document: Any) -> None:
    """Publishes a verdict as a tick of the schedule does."""
    members = {"abstain_reason": None, "decided": True, **answer}
    soon = None if members["decided"] else datetime.now(UTC) + timedelta(seconds=1)
    service.in_store(
        lambda connection: publish(connection, experiment_id, members, document, next_look_at=soon)
    )


CODES = [
    ({"verdict": "keep", **FOUND}, {}, [], 0, "keep"),
    ({"verdict": "rollback", **FOUND}, {}, [], 10, "rollback"),
    ({"verdict": "iterate", **FOUND, **BREACHED}, {}, [], 11, "error"),
    ({**ABSTAIN, **BREACHED}, {}, [], 13, "error"),
    ({**ENDED, **BREACHED}, {}, [], 13, "error"),
    ({**ABSTAIN, "abstain_reason": "non_identifiable"}, {}, [], 15, "non_identifiable"),
    ({**ABSTAIN, "abstain_reason": "interacting"}, {}, [], 15, "interacting"),
    ({**ENDED, "abstain_reason": "interacting"}, {}, [], 15, "interacting"),
    (ENDED, {"ended_because": "futility"}, [], 12, "smaller than the 1 % that this project set"),
    (ENDED, {"ended_because": "promoted"}, [], 12, "promoted"),
    ({**ENDED, **ALIASED}, {"ended_because": "promoted"}, [], 15, "non_identifiable"),
    (ENDED, {"in_cells": 0}, [], 15, "no events"),
    (ENDED, {"warnings": ["metric_never_seen"]}, [], 15, "target metric"),
    (ENDED, {"warnings": ["none_in_window"]}, [], 15, "the window after its exposure"),
    (ABSTAIN, {}, [], 14, "no verdict within 0 seconds"),
    (ABSTAIN, {"not_worse_than": -0.19}, ["--accept-harm", "0.2"], 0, "20 %"),
    (ABSTAIN, {"not_worse_than": -0.19}, [], 14, "no verdict"),
    (ABSTAIN, {"not_worse_than": -0.21}, ["--accept-harm", "0.2"], 14, "no verdict"),
    (ABSTAIN, {"not_worse_than": 0.19, "better": "lower"}, ["--accept-harm", "0.2"], 0, "20 %"),
    (ABSTAIN, {"not_worse_than": 0.21, "better": "lower"}, ["--accept-harm", "0.2"], 14, ""),
    (ENDED, {"not_worse_than": -0.1}, ["--accept-harm", "0.2"], 0, "20 %"),
    ({**ABSTAIN, **BREACHED}, {"not_worse_than": -0.1}, ["--accept-harm", "0.2"], 13, "error"),
    (
        {**ABSTAIN, "abstain_reason": "interacting"},
        {"not_worse_than": -0.1},
        ["--accept-harm", "0.2"],
        15,
        "interacting",
    ),
    ({**ABSTAIN, "abstain_reason": "interacting", **BREACHED}, {}, [], 13, "error"),
    ({**ABSTAIN, **SHORT}, {"gates": STEADY}, [], 15, "arrival alone is breached, at a steady"),
    ({**ENDED, **SHORT}, {"gates": STEADY}, [], 15, "arrival alone"),
    ({**ABSTAIN, **SHORT}, {"gates": FELL}, [], 13, "breached without a verdict: arrival"),
    ({**ABSTAIN, **SHORT}, {}, [], 13, "arrival"),
    ({**ABSTAIN, "guardrail_breaches": ["error", "arrival"]}, {"gates": STEADY}, [], 13, "error"),
    ({"verdict": "rollback", **FOUND, **SHORT}, {"gates": STEADY}, [], 10, "rollback"),
    ({"verdict": "rollback", **FOUND, **BREACHED}, {"not_worse_than": -0.1}, [], 10, "rollback"),
]


@pytest.mark.parametrize(("answer", "known", "words", "code", "said"), CODES)
def test_each_end_has_its_exit_code_and_says_why(
    *, served, command, answer, known, words, code, said
) -> None:
    experiment_id = registered(served)
    published(served, experiment_id, answer, evidence(**known))
    result = command("wait", experiment_id, "--timeout", "0", *words)
    assert result.exit_code == code, result.output
    first, second = result.stdout.splitlines()
    assert first.endswith("What is known.")
    assert said in second


@pytest.mark.parametrize("verdict", ["keep", "rollback"])
def test_while_frozen_there_is_nothing_to_act_on(served, command, verdict) -> None:
    experiment_id = registered(served)
    published(served, experiment_id, {"verdict": verdict, **FOUND}, evidence())
    served.in_store(lambda connection: freeze(connection, "an incident"))
    held = command("wait", experiment_id, "--timeout", "0")
    assert held.exit_code == 14
    assert held.stdout.splitlines()[1].startswith("frozen: an incident.")
    served.in_store(unfreeze)
    ended = command("wait", experiment_id, "--timeout", "0")
    assert ended.exit_code == {"keep": 0, "rollback": 10}[verdict]


def test_the_contract_is_printed_to_the_byte_and_nothing_else(served, command) -> None:
    experiment_id = registered(served)
    published(served, experiment_id, {"verdict": "rollback", **FOUND}, evidence())
    result = command("wait", experiment_id, "--json")
    assert result.exit_code == 10
    assert result.stdout == served.get(f"/v1/reward/{experiment_id}").text + "\n"


def test_before_any_look_it_waits_and_says_so(served, command) -> None:
    result = command("wait", registered(served), "--timeout", "0", "--accept-harm", "0.2")
    assert result.exit_code == 14
    assert "Nothing was measured yet. The first look at activation can come" in result.stdout


def test_a_verdict_that_comes_while_it_waits_ends_it(served, command) -> None:
    experiment_id = registered(served)
    published(served, experiment_id, ABSTAIN, evidence())
    answer = {"verdict": "keep", **FOUND}
    late = threading.Timer(0.3, published, (served, experiment_id, answer, evidence()))
    late.start()
    result = command("wait", experiment_id, "--timeout", "60s", "--every", "0.1s")
    late.join()
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "What is known."


def test_what_is_known_while_waiting_is_said_once_beside_what_a_program_reads(
    stored, command
) -> None:
    experiment_id = registered(stored)
    published(stored, experiment_id, ABSTAIN, evidence())
    result = command("wait", experiment_id, "--timeout", "1.5s", "--every", "0.1s", "--json")
    assert result.exit_code == 14
    known, end = result.stderr.splitlines()
    assert (known, end) == ("What is known.", "no verdict within 2 seconds.")


@pytest.mark.parametrize(
    "words", [["--timeout", "soon"], ["--accept-harm", "0"], ["--every", "-1"]]
)
def test_a_wrong_call_is_told_from_an_answer(command, words) -> None:
    assert command("wait", "exp_1", *words).exit_code == 2


def seen(counts: dict[str, int] | None = None) -> Poll:
    known = None if counts is None else example_evidence(counts=counts)
    return Poll(contract=contract("exp_1", **ABSTAIN), evidence=known)


def test_without_a_look_the_timeout_is_no_fault_before_a_look_could_have_come() -> None:
    for waited, code in ((FIRST_LOOK_SECONDS - 1, Exit.TIMEOUT), (FIRST_LOOK_SECONDS, Exit.FAULT)):
        end = outcome(seen(), accept_harm=None, waited=waited, timeout=waited)
        assert end is not None
        assert end.exit is code
    assert outcome(seen(), accept_harm=None, waited=FIRST_LOOK_SECONDS, timeout=1e6) is None


def test_units_that_wait_for_their_window_are_no_fault() -> None:
    waiting = seen({"in_cells": 0, "open": 80})
    end = outcome(waiting, accept_harm=None, waited=7200, timeout=7200)
    assert end is not None
    assert end.exit is Exit.TIMEOUT


@pytest.mark.parametrize(
    ("count", "word"),
    [("unknown_commit", "deploy of the commit"), ("ambiguous_commit", "send the whole id")],
)
def test_units_of_no_commit_that_is_known_say_what_is_missing(count, word) -> None:
    counts = seen({"in_cells": 0, "open": 0, count: 80})
    end = outcome(counts, accept_harm=None, waited=7200, timeout=7200)
    assert end is not None
    assert (end.exit, word in end.because) == (Exit.FAULT, True)


@pytest.mark.parametrize(
    ("retry_after", "every", "left", "seconds"),
    [
        (None, 5, 100, 5),
        (1, 5, 100, 5),
        (30, 5, 100, 30),
        # A guardrail's look may come before the target's: each tick can bring something.
        (7200, 5, 9000, 60),
        (30, 5, 12, 12),
        (30, 120, 900, 120),
    ],
)
def test_polls_come_when_the_service_says_and_never_too_often(
    retry_after, every, left, seconds
) -> None:
    assert pause(retry_after, every=every, left=left) == seconds


@pytest.mark.process
def test_a_restart_of_the_service_is_waited_out(service) -> None:
    experiment_id = registered(service)
    published(service, experiment_id, ABSTAIN, evidence(sentence="Can't say yet."))
    with ExitStack() as first:
        url = first.enter_context(serving(service))
        environment = {
            **os.environ,
            "SERVICE_API_URL": url,
            "SERVICE_PROJECT_KEY": service.project.keys[KeyKind.PROJECT],
        }
        words = ["-m", "cli", "wait", experiment_id, "--timeout", "2m", "--every", "0.1s"]
        with subprocess.Popen(
            [sys.executable, *words], env=environment, stderr=subprocess.PIPE, text=True
        ) as waiting:
            assert waiting.stderr is not None
            assert waiting.stderr.readline() == "Can't say yet.\n"
            first.close()
            assert waiting.stderr.readline().endswith("asking again\n")
            published(service, experiment_id, {"verdict": "keep", **FOUND}, evidence())
            with serving(service, port=int(url.rsplit(":", 1)[1])):
                assert waiting.wait(timeout=60) == 0


def test_the_help_prints_each_exit_code_in_a_line_of_its_own(command) -> None:
    lines = command("wait", "--help").stdout.splitlines()
    assert lines[6:9] == ["   0  keep", "  10  rollback", "  11  iterate"]
