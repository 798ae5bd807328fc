"""The list of experiments, cut to pages of a kilobyte that follow on each other."""

from msgspec import structs

from domain.listing import VerdictList
from mcp_server.contract import Experiments, Listed
from mcp_server.explanation import cut, fits

# So many fit, of usual commits and metrics.
MOST = 5
COMMIT_CHARACTERS = 12
METRIC_BYTES = 160
HEADLINE_BYTES = 60


def listing(page: VerdictList) -> Experiments:
    """A page of the service as an agent reads it."""
    rows = tuple(
        Listed(
            experiment_id=row.experiment_id,
            treatment_commit=row.treatment_commit and row.treatment_commit[:COMMIT_CHARACTERS],
            metric=cut(row.metric, METRIC_BYTES),
            verdict=row.contract.verdict,
            abstain_reason=row.contract.abstain_reason,
            decided=row.contract.decided,
            headline=cut(row.headline, HEADLINE_BYTES),
            action=row.action,
        )
        for row in page.experiments
    )
    return Experiments(experiments=rows, next_cursor=page.next_cursor)


def room(page: Experiments) -> int:
    """Returns how many experiments to request so that a page fits: fewer, and at least 1.

    The service's cursor continues after the last experiment that it returned, so the experiments
    left out here come next.
    """
    shown = len(page.experiments) - 1
    while shown > 1 and not fits(structs.replace(page, experiments=page.experiments[:shown])):
        shown -= 1
    return shown
