"""The list of experiments, cut to pages of one kilobyte that follow on one another."""

from collections.abc import Mapping
from typing import Any

from mcp_server.contract import Experiments, Listed
from mcp_server.explanation import LONGEST_BYTES, as_json, cut

# So many fit, of usual commits and metrics.
MOST = 5
COMMIT_CHARACTERS = 12
METRIC_BYTES = 160


def listing(page: Mapping[str, Any]) -> Experiments:
    """A page of the service as an agent reads it.

    Args:
        page: The body of `GET /v1/reward`.

    Raises:
        KeyError, TypeError, ValueError: It is no such body.
    """
    rows = [_listed(row) for row in page["experiments"]]
    return Experiments(experiments=rows, next_cursor=page["next_cursor"])


def fits(page: Experiments) -> bool:
    """Tells whether a page is at most one kilobyte of JSON."""
    return len(as_json(page.model_dump())) <= LONGEST_BYTES


def room(page: Experiments) -> int:
    """Returns how many experiments to request so that a page fits: fewer, and at least 1.

    The service's cursor continues after the last experiment that it returned, so the experiments
    left out here come next.
    """
    shown = len(page.experiments) - 1
    while shown > 1 and not fits(page.model_copy(update={"experiments": page.experiments[:shown]})):
        shown -= 1
    return shown


def _listed(row: Mapping[str, Any]) -> Listed:
    contract, commit = row["contract"], row["treatment_commit"]
    members = {
        "experiment_id": row["experiment_id"],
        "treatment_commit": None if commit is None else commit[:COMMIT_CHARACTERS],
        "metric": cut(row["metric"], METRIC_BYTES),
        "verdict": contract["verdict"],
        "abstain_reason": contract["abstain_reason"],
        "decided": contract["power_state"]["decided"],
    }
    return Listed.model_validate(members, strict=True)
