"""The ledger as an asset, and the nightly splits of each project's own traffic."""

import warnings
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from orchestration.dagster.keys import (
    EXPOSURES,
    LEDGER,
    OWN_SPLITS,
    OWNERS,
    PREFIX,
    TAGS,
    VERDICTS,
    table_metadata,
)
from orchestration.dagster.resources import Store
from orchestration.dagster.table import MOST_ROWS, Rows, markdown, plain

if TYPE_CHECKING:
    from domain.ledger.account import Ledger
    from storage.ledger.entries import JudgedProject

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
        # Where the only experiment's metric takes a month to close, no day settles before.
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(days=32)),
    )
    def ledger(store: Store) -> dg.MaterializeResult[Any]:
        """The sums over each project's verdicts of 30 days, and how many keeps stand.

        Stored nowhere, and part of no verdict; but the prior that a project's changes teach of its
        next is kept, a row a day.

        - **Final**: never. Experiments leave it when their last look is 30 days old.
        - **Backfill**: none. Each run of the day counts anew.
        - **Served** at `GET /v1/reward/ledger` and on the dashboard, with the sums of keeps.
        """
        from domain.policy import EFFECT_PRIOR
        from stats.decision.learned_prior import learned_prior
        from storage.ledger.effects import final_likelihoods, keep_prior
        from storage.ledger.entries import judged_projects, read_ledger

        as_of = datetime.now(UTC)
        with store.reading() as connection:
            projects = judged_projects(connection, as_of=as_of)
            for project in projects:
                if likelihoods := final_likelihoods(connection, project.project_id):
                    prior = learned_prior(likelihoods, EFFECT_PRIOR)
                    keep_prior(connection, project.project_id, prior)
            accounts = [
                (project, read_ledger(connection, project.project_id, as_of=as_of))
                for project in projects[:MOST_ROWS]
            ]
        ledgers = [ledger for _, ledger in accounts]
        return dg.MaterializeResult(
            metadata={
                "judged": sum(ledger.judged for ledger in ledgers),
                "kept": sum(ledger.kept for ledger in ledgers),
                "rolled_back": sum(ledger.rolled_back for ledger in ledgers),
                "standing": sum(ledger.standing for ledger in ledgers),
                "expected_false": round(sum(ledger.expected_false for ledger in ledgers), 3),
                "projects": markdown(_projects(accounts), beyond=len(projects[MOST_ROWS:])),
            }
        )

    @dg.asset(
        key=OWN_SPLITS,
        deps=[EXPOSURES],
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=f"{PREFIX}_answers",
        owners=OWNERS,
        tags=TAGS,
        kinds={"python", "postgres"},
        metadata=table_metadata(OWN_SPLITS),
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(days=32)),
    )
    def own_splits(store: Store) -> dg.MaterializeResult[Any]:
        """Each project's control of the last week, split by lot where there is no effect.

        - **Final**: at once, a row a night; the salt of its draw is new each night.
        - **Backfill**: none.
        - **Served** in the checklist. No verdict reads it.
        """
        from orchestration.ledger.own_splits import own_splits as computed
        from storage.ledger.own_splits import control_weeks, keep_splits

        as_of = datetime.now(UTC)
        with store.reading() as connection:
            weeks = control_weeks(connection, as_of=as_of)
            nights = [(week.project_id, computed(week, night=as_of.date())) for week in weeks]
            for project_id, splits in nights:
                keep_splits(connection, project_id, splits)
        rows = [
            {"experiment": splits.experiment_id, "splits": sentence}
            for _, splits in nights
            for sentence in splits.sentences
        ]
        return dg.MaterializeResult(
            metadata={
                "wrong": sum(len(splits.wrong) for _, splits in nights),
                "splits": markdown(rows[:MOST_ROWS], beyond=len(rows[MOST_ROWS:])),
            }
        )


def _projects(accounts: "Sequence[tuple[JudgedProject, Ledger]]") -> Rows:
    return [
        {
            "project": plain(project.name),
            "judged": f"{ledger.judged:,}",
            "kept": f"{ledger.kept:,}",
            "stand": f"{ledger.standing:,}",
            "expected false, at most": f"{ledger.expected_false:.1f}",
            "rolled back": f"{ledger.rolled_back:,}",
        }
        for project, ledger in accounts
    ]
