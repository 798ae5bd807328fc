"""The component: the service in a team's own Dagster project, by a few lines of YAML."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import pandas as pd
from dagster.components import ResolvedAssetKey
from dbt_metrics import read_metrics
from pydantic import Field
from sqlalchemy import NullPool, create_engine, text

from orchestration.dagster.keys import OWNERS, PREFIX, RUNTIME_EVENTS, TAGS, asset_key
from orchestration.dagster.resources import Store
from orchestration.definitions import parts


class Outcomes(dg.Model, dg.Resolvable):
    """Late outcomes that an asset of the team's own brings into a database."""

    from_asset: ResolvedAssetKey = Field(description="The asset that makes the rows.")
    database_env: str = Field(
        description="The environment variable that holds the database's SQLAlchemy URL."
    )
    key_env: str = Field(
        default="SERVICE_PROJECT_KEY",
        description="The environment variable that holds the write key of the project.",
    )
    query: str = Field(
        description="Selects the rows: `event`, `session_id` and `occurred_at`, and what else an"
        " event has. Rows of earlier runs may come again: an `event_id` counts once."
    )


class DbtProject(dg.Model, dg.Resolvable):
    """A dbt project, the events of whose metrics are sent from its models."""

    manifest: str = Field(description="target/manifest.json, as seen from this file's folder.")
    unit: str = Field(default="", description="The entity that arms are drawn by.")
    key_prefix: Sequence[str] = Field(default=(), description="Of the keys of its models' assets.")
    database_env: str = Field(description="As of `outcomes`.")
    key_env: str = Field(default="SERVICE_PROJECT_KEY", description="As of `outcomes`.")

    def outcomes(self, folder: Path) -> list[Outcomes]:
        """Returns the outcomes of each model that a metric counts, of the last three days."""
        metrics = read_metrics((folder / self.manifest).read_bytes(), unit=self.unit)
        return [
            Outcomes(
                from_asset=dg.AssetKey([*self.key_prefix, table]),
                database_env=self.database_env,
                key_env=self.key_env,
                query=query,
            )
            for table, query in metrics.queries(days=3).items()
        ]


class DeployReward(dg.Component, dg.Model, dg.Resolvable):
    """The pipeline from deploys and events to verdicts, with the team's assets before it.

    The environment names the store (SERVICE_DATABASE_URL) and, for outcomes, the running service
    (SERVICE_API_URL).
    """

    outcomes: Sequence[Outcomes] = Field(
        default=(), description="Assets whose rows are sent as outcomes when they have changed."
    )

    dbt: DbtProject | None = Field(
        default=None, description="A dbt project whose metrics `deploy-reward metrics` writes."
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Returns our definitions, in which the log depends on the assets that send outcomes.

        Without an executor: the project's own runs its jobs, and ours name theirs.
        """
        of_dbt = [] if self.dbt is None else self.dbt.outcomes(context.path)
        senders = [_sender(each) for each in (*self.outcomes, *of_dbt)]

        def after_senders(spec: dg.AssetSpec) -> dg.AssetSpec:
            if spec.key != RUNTIME_EVENTS:
                return spec
            return spec.merge_attributes(deps=[sender.key for sender in senders])

        return dg.Definitions.merge(
            parts(Store()).map_asset_specs(func=after_senders), dg.Definitions(assets=senders)
        )


def _sender(outcomes: Outcomes) -> dg.AssetsDefinition:
    """Returns the asset that sends the outcomes of another."""

    @dg.asset(
        key=asset_key(outcomes.from_asset.path[-1]),
        deps=[outcomes.from_asset],
        description=f"What `{outcomes.from_asset.to_user_string()}` knows late of the units that"
        " the experiments count, sent as events with the write key. Rows that were sent before"
        " count once.",
        group_name=f"{PREFIX}_log",
        owners=OWNERS,
        tags=TAGS,
        kinds={"python", "sql"},
        # A test of the model that fails holds what reads it.
        automation_condition=dg.AutomationCondition.eager()
        & dg.AutomationCondition.all_deps_blocking_checks_passed(),
    )
    def sender() -> dg.MaterializeResult[Any]:
        # Without a pool, so that a query that fails leaves no connection open.
        engine = create_engine(_variable(outcomes.database_env), poolclass=NullPool)
        with engine.connect() as connection:
            rows = pd.read_sql(text(outcomes.query), connection)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "outcomes.parquet"
            rows.to_parquet(file)
            # The command checks the whole file before it sends, and again what was refused.
            sent = subprocess.run(
                [sys.executable, "-P", "-m", "cli", "outcomes", str(file), "--json"],
                env={**os.environ, "SERVICE_PROJECT_KEY": _variable(outcomes.key_env)},
                capture_output=True,
                text=True,
                check=False,
            )
        if sent.returncode:
            raise dg.Failure(sent.stderr.strip(), allow_retries=False)
        return dg.MaterializeResult(
            metadata={"dagster/row_count": len(rows), **json.loads(sent.stdout)}
        )

    return sender


def _variable(name: str) -> str:
    if value := os.environ.get(name):
        return value
    raise dg.Failure(f"{name} is not set", allow_retries=False)
