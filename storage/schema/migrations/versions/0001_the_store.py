"""The store as first released."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

_GUARD = """
CREATE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Only a rebuild, which says so for its own transaction, may empty the verdicts.
    IF TG_OP = 'TRUNCATE' THEN
        IF coalesce(current_setting('deploy_reward.rebuild', true), '') <> 'on' THEN
            RAISE EXCEPTION 'verdicts are emptied by a rebuild alone'
                USING ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN NULL;
    END IF;
    IF OLD.decided THEN
        RAISE EXCEPTION 'experiment % is decided: its verdict is never rewritten',
            OLD.experiment_id USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER refuse_rewriting BEFORE UPDATE OR DELETE ON verdicts
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER refuse_truncating BEFORE TRUNCATE ON verdicts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
"""


def upgrade() -> None:
    op.create_table(
        "cursors",
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("stage", "experiment_id", name=op.f("pk_cursors")),
    )
    op.create_table(
        "projects",
        sa.Column("project_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("settings", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("current_graph_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )
    op.create_table(
        "runtime_events",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("commit_sha", sa.Text(), nullable=True),
        sa.Column("route", sa.Text(), nullable=True),
        sa.Column("pseudonym", sa.LargeBinary(), nullable=True),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("flags", postgresql.JSONB(), nullable=True),
        sa.Column("properties", postgresql.JSONB(), nullable=True),
        postgresql_partition_by="RANGE (received_at)",
    )
    op.create_index(
        op.f("ix_runtime_events_project_id_session_id"),
        "runtime_events",
        ["project_id", "session_id"],
        unique=False,
        postgresql_where=sa.text("pseudonym IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_runtime_events_received_at"),
        "runtime_events",
        ["received_at"],
        unique=False,
        postgresql_using="brin",
    )
    op.create_table(
        "commits",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("commit_sha", sa.Text(), nullable=False),
        sa.Column("changes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("base", sa.Text(), nullable=True),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("base_recorded_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_commits_project_id")
        ),
        sa.PrimaryKeyConstraint("project_id", "environment", "commit_sha", name=op.f("pk_commits")),
    )
    op.create_table(
        "graphs",
        sa.Column("graph_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("route_count", sa.Integer(), nullable=False),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_graphs_project_id")
        ),
        sa.PrimaryKeyConstraint("graph_id", name=op.f("pk_graphs")),
        sa.UniqueConstraint("project_id", "digest", name=op.f("uq_graphs_project_id_digest")),
    )
    op.create_table(
        "keys",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("display", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('write', 'public', 'project')", name=op.f("ck_keys_kind")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_keys_project_id")
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_keys")),
    )
    op.create_index(op.f("ix_keys_project_id"), "keys", ["project_id"], unique=False)
    op.create_table(
        "revenue_events",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("amount_value", sa.BigInteger(), nullable=True),
        sa.Column("amount_currency", sa.Text(), nullable=True),
        sa.Column("pseudonym", sa.LargeBinary(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("environment", sa.Text(), nullable=True),
        sa.Column("attributes", sa.JSON(), nullable=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_revenue_events_project_id")
        ),
        sa.PrimaryKeyConstraint("project_id", "idempotency_key", name=op.f("pk_revenue_events")),
    )
    op.create_index(
        op.f("ix_revenue_events_received_at"), "revenue_events", ["received_at"], unique=False
    )
    op.create_table(
        "deploys",
        sa.Column("deploy_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("commit_sha", sa.Text(), nullable=False),
        sa.Column("commit", sa.JSON(), nullable=False),
        sa.Column("base_commit", sa.Text(), nullable=True),
        sa.Column("base_assumed", sa.Boolean(), nullable=False),
        sa.Column("deployed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("graph_id", sa.Text(), nullable=True),
        sa.Column("diff", sa.JSON(), nullable=True),
        sa.Column("allocation", sa.Double(), nullable=True),
        sa.Column("affected_routes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("affected_routes_complete", sa.Boolean(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("allocation BETWEEN 0 AND 1", name=op.f("ck_deploys_allocation")),
        sa.ForeignKeyConstraint(
            ["graph_id"], ["graphs.graph_id"], name=op.f("fk_deploys_graph_id")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_deploys_project_id")
        ),
        sa.PrimaryKeyConstraint("deploy_id", name=op.f("pk_deploys")),
        sa.UniqueConstraint(
            "project_id",
            "environment",
            "commit_sha",
            "deployed_at",
            name=op.f("uq_deploys_project_id_environment_commit_sha_deployed_at"),
        ),
        sa.UniqueConstraint(
            "project_id", "idempotency_key", name=op.f("uq_deploys_project_id_idempotency_key")
        ),
    )
    op.create_table(
        "experiments",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("request", postgresql.JSONB(), nullable=False),
        sa.Column("target_metric", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("treatment_commit", sa.Text(), nullable=True),
        sa.Column("control_commit", sa.Text(), nullable=True),
        sa.Column("change", sa.ARRAY(sa.Text()), nullable=True),
        sa.Column("deploy_id", sa.Text(), nullable=True),
        sa.Column("bound_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("policy", postgresql.JSONB(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(bound_at IS NULL) = (policy IS NULL) AND (bound_at IS NULL) = (starts_at IS NULL) AND (bound_at IS NULL) = (change IS NULL) AND (bound_at IS NULL) = (deploy_id IS NULL)",
            name=op.f("ck_experiments_bound"),
        ),
        sa.ForeignKeyConstraint(
            ["deploy_id"], ["deploys.deploy_id"], name=op.f("fk_experiments_deploy_id")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_experiments_project_id")
        ),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_experiments")),
    )
    op.create_index(
        op.f("ix_experiments_project_id_registered_at"),
        "experiments",
        ["project_id", "registered_at"],
        unique=False,
    )
    op.create_table(
        "amounts",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.experiment_id"], name=op.f("fk_amounts_experiment_id")
        ),
        sa.PrimaryKeyConstraint("experiment_id", "metric", "unit", "key", name=op.f("pk_amounts")),
    )
    op.create_table(
        "cells",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("block", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=False),
        sa.Column("n1", sa.BigInteger(), nullable=False),
        sa.Column("x1", sa.BigInteger(), nullable=False),
        sa.Column("n0", sa.BigInteger(), nullable=False),
        sa.Column("x0", sa.BigInteger(), nullable=False),
        sa.Column("y1", sa.Double(), nullable=True),
        sa.Column("yy1", sa.Double(), nullable=True),
        sa.Column("y0", sa.Double(), nullable=True),
        sa.Column("yy0", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "x1 BETWEEN 0 AND n1 AND x0 BETWEEN 0 AND n0", name=op.f("ck_cells_counts")
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.experiment_id"], name=op.f("fk_cells_experiment_id")
        ),
        sa.PrimaryKeyConstraint(
            "experiment_id", "metric", "block", "stratum", name=op.f("pk_cells")
        ),
    )
    op.create_table(
        "conversions",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name=op.f("fk_conversions_experiment_id"),
        ),
        sa.PrimaryKeyConstraint("experiment_id", "metric", "unit", name=op.f("pk_conversions")),
    )
    op.create_table(
        "evidence",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("contract", sa.JSON(), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_look_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.experiment_id"], name=op.f("fk_evidence_experiment_id")
        ),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_evidence")),
    )
    op.create_table(
        "exposures",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("exposed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("block", sa.DateTime(timezone=True), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=True),
        sa.Column("commit_sha", sa.Text(), nullable=False),
        sa.Column("pseudonym", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint(
            "arm IN ('treatment', 'control', 'partial', 'in_flight', 'excluded')",
            name=op.f("ck_exposures_arm"),
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name=op.f("fk_exposures_experiment_id"),
        ),
        sa.PrimaryKeyConstraint("experiment_id", "unit", name=op.f("pk_exposures")),
    )
    op.create_index(
        op.f("ix_exposures_experiment_id_block"),
        "exposures",
        ["experiment_id", "block"],
        unique=False,
    )
    op.create_index(
        op.f("ix_exposures_experiment_id_pseudonym"),
        "exposures",
        ["experiment_id", "pseudonym"],
        unique=False,
        postgresql_where=sa.text("pseudonym IS NOT NULL"),
    )
    op.create_table(
        "sightings",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "kind IN ('in_flight', 'unknown_commit', 'late', 'unmatched_route', 'crossover')",
            name=op.f("ck_sightings_kind"),
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name=op.f("fk_sightings_experiment_id"),
        ),
        sa.PrimaryKeyConstraint("experiment_id", "kind", "unit", name=op.f("pk_sightings")),
    )
    op.create_table(
        "strata",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("stratum", sa.Text(), nullable=False),
        sa.Column("commit_sha", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.experiment_id"], name=op.f("fk_strata_experiment_id")
        ),
        sa.PrimaryKeyConstraint("experiment_id", "stratum", name=op.f("pk_strata")),
    )
    op.create_table(
        "verdicts",
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("contract", sa.JSON(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("abstain_reason", sa.Text(), nullable=True),
        sa.Column("decided", sa.Boolean(), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_look_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(verdict = 'abstain') = (abstain_reason IS NOT NULL)", name=op.f("ck_verdicts_reason")
        ),
        sa.CheckConstraint(
            "abstain_reason IN ('power', 'non_identifiable', 'interacting')",
            name=op.f("ck_verdicts_abstain_reason"),
        ),
        sa.CheckConstraint(
            "verdict IN ('keep', 'rollback', 'iterate', 'abstain')",
            name=op.f("ck_verdicts_verdict"),
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.experiment_id"], name=op.f("fk_verdicts_experiment_id")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_verdicts_project_id")
        ),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_verdicts")),
    )
    op.create_index(
        op.f("ix_verdicts_project_id_decided"), "verdicts", ["project_id", "decided"], unique=False
    )
    op.execute(_GUARD)
