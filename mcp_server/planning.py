"""The plan of a canary, and the next step of a set-up."""

from collections.abc import Sequence

from domain.checklist.line import ChecklistLine
from domain.planning.boundary import Boundary
from domain.planning.design import Design
from domain.planning.plan import alternatives, prospects
from domain.planning.requirement import HORIZON_DAYS, smallest_lift_by_horizon
from mcp_server.contract import Plan, Quicker, SetUp, shown
from mcp_server.explanation import fitted

_QUICKER_LIFT = 0.2
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
    return Plan(
        lifts=tuple(prospects(design, boundary)),
        horizon_days=HORIZON_DAYS,
        smallest_lift_by_horizon=smallest_lift_by_horizon(design, boundary),
        quicker=tuple(
            Quicker(change=change, days_to_decide=each.days_to_decide)
            for change, other in alternatives(design)
            for each in prospects(other, boundary)
            if each.relative_lift == _QUICKER_LIFT
        ),
    )


def _example(line: ChecklistLine) -> str | None:
    """Returns what to write for a line, where its fix is to write something."""
    # Events may also be missed because nothing looks at them, or because their sender fell silent.
    if line.check == "events" and not line.fix.startswith(("POST /v1/events", "Send ")):
        return None
    return _EXAMPLES.get(line.check)


def set_up(lines: Sequence[ChecklistLine], *, url: str) -> dict[str, object]:
    """Returns a `SetUp` as an agent gets it: the first step that a project's set-up still lacks.

    Args:
        lines: In the order of a set-up.
    """
    # Red lines come before those that cannot be judged yet.
    left = [line for ok in (False, None) for line in lines if line.ok is ok]
    example = _example(left[0]) if left else None
    step = SetUp(
        done=sum(line.ok is True for line in lines),
        of=len(lines),
        step=left[0] if left else None,
        example=None if example is None else example.format(url=url),
        red=tuple(line for line in left if line.ok is False),
        left_out=0,
    )
    answer = shown(step)
    return fitted(answer, (answer["red"], 0))
