"""An unwell service: failures that test_stdio.py has no process for, and how they are worded."""

from typing import Any

import pytest

KEY_PART = "canaryCanary"


def failure(result: Any) -> str:
    assert result.is_error
    assert result.structured_content is None
    (block,) = result.content
    assert KEY_PART not in block.text
    assert "Error executing tool" not in block.text
    return block.text


@pytest.mark.parametrize(
    ("pointer", "fault", "detail", "lines"),
    [
        (
            "/target_metric/name",
            "At most 128.",
            "The body breaks a rule.",
            ["The body breaks a rule.", "/target_metric/name: At most 128."],
        ),
        # The detail names it already.
        (
            "/deploy_id",
            "no such deploy",
            "/deploy_id: no such deploy",
            ["/deploy_id: no such deploy"],
        ),
    ],
)
def test_a_problem_names_the_members_at_fault_once(
    *, service, call, pointer, fault, detail, lines
) -> None:
    errors = [{"pointer": pointer, "code": "wrong", "detail": fault}]
    service.problem("/v1/reward/register", 422, detail, errors=errors)
    said = failure(call("register_experiment")).splitlines()
    assert said == [*lines, "Correct the arguments and call again."]


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_is_busy_says_when_to_come_again(service, call, status) -> None:
    body = {"detail": "Too much."}
    service.answers_with("/v1/reward/exp_1", body, status=status, headers={"Retry-After": "17"})
    assert "in 17 seconds" in failure(call("get_verdict", {"experiment_id": "exp_1"}))


@pytest.mark.timeout(10)
def test_a_service_that_drips_is_given_up_too(service, call) -> None:
    service.dripping = True
    arguments = {"experiment_id": "exp_1"}
    assert "no answer within" in failure(call("get_verdict", arguments, answer_seconds=0.2))


def test_an_endless_body_is_given_up(service, call) -> None:
    service.answers_with("/v1/reward/exp_1", " " * (5 * 1024 * 1024))
    assert "broke off" in failure(call("get_verdict", {"experiment_id": "exp_1"}))
