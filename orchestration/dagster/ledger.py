"""The ledger as an asset: the sums over each project's verdicts of 28 days."""

import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from domain.ledger.account import account_of
from orchestration.dagster.assets import FRESHNESS
from orchestration.dagster.keys import LEDGER, OWNERS, PREFIX, TAGS, VERDICTS
from orchestration.dagster.resources import Store
from orchestration.dagster.table import MOST_ROWS, Rows, markdown, plain
from storage.views.ledger import JudgedProject, judged_projects, read_entries

with warnings.catch_warnings():
    # A command that names a range of days wants it of the assets without days as well.
    warnings.simplefilter("ignore", dg.BetaWarning)

    @dg.asset(
        key=LEDGER,
        deps=[VERDICTS],
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=f"{PREFIX}_answers",
        owners=OWNERS,
        tags=TAGS,
        kinds={"python", "postgres"},
        freshness_policy=FRESHNESS,
    )
    def ledger(store: Store) -> dg.MaterializeResult[Any]:
        """The sums over each project's verdicts of 28 days, and how many keeps stand.

        Stored nowhere, and part of no verdict.

        - **Final**: never. Experiments leave it when their last look is 28 days old.
        - **Backfill**: none. Each hour's run counts anew.
        - **Served** at `GET /v1/reward/ledger`, with who made the changes, and on the dashboard.
        """
        as_of = datetime.now(UTC)
        with store.reading() as connection:
            projects = judged_projects(connection, as_of=as_of)
            accounts = [
                (
                    project,
                    account_of(
                        read_entries(connection, project.project_id, as_of=as_of), as_of=as_of
                    ),
                )
                for project in projects[:MOST_ROWS]
            ]
        counts = ("judged", "kept", "rolled_back", "standing")
        sums = {name: sum(account[name] for _, account in accounts) for name in counts}
        return dg.MaterializeResult(
            metadata={
                **sums,
                "expected_false": round(
                    sum(account["expected_false"] for _, account in accounts), 3
                ),
                "projects": markdown(_projects(accounts), beyond=len(projects[MOST_ROWS:])),
                "effects_of_keeps": markdown(_effects(accounts)),
            }
        )


Accounts = Sequence[tuple[JudgedProject, Mapping[str, Any]]]


def _projects(accounts: Accounts) -> Rows:
    return [
        {
            "project": plain(project.name),
            "judged": f"{account['judged']:,}",
            "kept": f"{account['kept']:,}",
            "stand": f"{account['standing']:,}",
            "expected false, at most": f"{account['expected_false']:.1f}",
            "rolled back": f"{account['rolled_back']:,}",
        }
        for project, account in accounts
    ]


def _effects(accounts: Accounts) -> Rows:
    """Returns the sums of relative effects of each project's metrics."""
    return [
        {
            "project": plain(project.name),
            "metric": plain(metric["metric"]),
            "kept": f"{metric['kept']:,}",
            "claimed": f"{100 * metric['claimed']:+.1f} %",
            "measured afterwards": f"{metric['measured']:,}",
            "those claimed": _share(metric, "claimed_of_measured"),
            "and brought": _share(metric, "after_decision"),
        }
        for project, account in accounts
        for metric in account["metrics"]
    ]


def _share(metric: Mapping[str, Any], name: str) -> str:
    return f"{100 * metric[name]:+.1f} %" if metric["measured"] else ""
