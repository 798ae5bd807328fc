"""The plan of a canary, and the next step of a set-up, each cut to a kilobyte."""

from collections.abc import Mapping, Sequence
from typing import Any

from domain.planning.boundary import Boundary
from domain.planning.design import Design
from domain.planning.plan import planned
from mcp_server.contract import Plan, PlannedLift, Quicker, SetUp
from mcp_server.explanation import cut, fitted, rounded

_QUICKER_LIFT = 0.2
_TEXT_BYTES = 250
_LINE_BYTES = 260
# For each line of the checklist: what to write, where the line alone does not show it.
_EXAMPLES = {
    "events": '<script async src="{url}/sdk.js" data-key="pk_…" data-commit="$SHA" '
    'data-cookie="session"></script>',
    "commit on events": 'data-commit="$SHA" on the script, or "commit": "$SHA" in each event',
    "commit known": 'POST {url}/v1/deploys with the write key: {{"commit": {{"sha": "$SHA"}}, '
    '"allocation": 0.1}}',
    "routes matched": 'POST {url}/v1/static-graphs: {{"schema_version": 1, "routes": '
    '[{{"path": "/checkout", "files": ["app/checkout/page.tsx"]}}]}}',
    "canary and control both get traffic": "serve the canary and what users have side by side,"
    " drawn by a hash of the session: POST {url}/ofrep/v1/evaluate/flags/commit does, with the"
    " setting ofrep",
    "target seen": '(window.deployReward ||= []).push(["track", "activation"])',
    "revenue joinable": "send the same user_ref in runtime and revenue events",
}


def plan(design: Design, boundary: Boundary) -> Plan:
    """Returns the days of a canary for each of some lifts, and quicker designs."""
    document = planned(design, boundary)
    smallest = document["smallest_lift_by_horizon"]
    return Plan(
        lifts=tuple(
            PlannedLift(
                relative_lift=lift["relative_lift"],
                days_to_decide=rounded(lift["days_to_decide"], 3),
                days_to_exclude_harm=rounded(lift["days_to_exclude_harm"], 3),
            )
            for lift in document["lifts"]
        ),
        horizon_days=document["horizon_days"],
        smallest_lift_by_horizon=None if smallest is None else rounded(smallest, 3),
        quicker=tuple(
            Quicker(change=other["change"], days_to_decide=rounded(lift["days_to_decide"], 3))
            for other in document["instead"]
            for lift in other["lifts"]
            if lift["relative_lift"] == _QUICKER_LIFT
        ),
    )


def _example(line: Mapping[str, Any]) -> str | None:
    """Returns what to write for a line, where its fix is to write something."""
    check, fix = str(line.get("check")), str(line.get("fix"))
    # Events may also be missed because nothing looks at them, or because their sender fell silent.
    if check == "events" and not fix.startswith(("POST /v1/events", "Send ")):
        return None
    return _EXAMPLES.get(check)


def set_up(lines: Sequence[Mapping[str, Any]], *, url: str) -> SetUp:
    """Returns the first step that a project's set-up still lacks, and all of its failed checks.

    Args:
        lines: The body of `GET /v1/reward/checklist`, in the order of a set-up.

    Returns:
        A step of at most 1,024 bytes as JSON; `left_out` counts the failed checks that did not fit.
    """
    done = sum(line.get("ok") is True for line in lines)
    # What is red comes before what cannot be judged yet.
    left = [line for ok in (False, None) for line in lines if line.get("ok") is ok]
    if not left:
        nothing = dict.fromkeys(("step", "seen", "do", "example"))
        return SetUp(done=done, of=len(lines), **nothing, red=(), left_out=0)
    line = left[0]
    example = _example(line)
    whole = SetUp(
        done=done,
        of=len(lines),
        step=cut(str(line.get("check", "")), _TEXT_BYTES),
        seen=cut(str(line.get("seen", "")), _TEXT_BYTES),
        do=cut(str(line.get("fix", "")), _TEXT_BYTES),
        example=None if example is None else example.format(url=url),
        # The first of them is the step itself.
        red=tuple(_line_text(line) for line in left if line.get("ok") is False),
        left_out=0,
    )
    return fitted(whole, red=0)


def _line_text(line: Mapping[str, Any]) -> str:
    text = f"{line.get('check', '')}: {line.get('seen', '')} {line.get('fix', '')}"
    return cut(text.strip(), _LINE_BYTES)
