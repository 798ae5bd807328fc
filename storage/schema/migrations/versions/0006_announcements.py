"""The outbox of announcements, with what was decided before as announced; freezes."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

# What was decided, breached or found faulty before the outbox stood is no news: it is kept as
# announced, with no delivery.
_KNOWN = """
INSERT INTO announcements (announcement_id, project_id, experiment_id, kind, subject,
    announced_at, contract, sentence, environment, metric, commit_sha)
SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), v.project_id, v.experiment_id, k.kind,
    k.subject, v.published_at, v.contract, v.evidence ->> 'sentence', x.environment,
    x.target_metric, x.treatment_commit
FROM verdicts AS v
JOIN experiments AS x USING (experiment_id)
CROSS JOIN LATERAL (
    SELECT CASE WHEN v.verdict = 'abstain' THEN 'closed' ELSE 'decided' END AS kind, '' AS subject
    WHERE v.decided
    UNION ALL
    SELECT 'breached', metric
    FROM json_array_elements_text(v.contract -> 'guardrail_breaches') AS metric
    UNION ALL
    SELECT 'set_up_fault', '' WHERE v.abstain_reason IN ('non_identifiable', 'interacting')
) AS k
"""

# The setting held bare addresses, and had no effect. Those that may be kept become webhooks.
_SETTINGS = r"""
UPDATE projects SET settings = jsonb_set(settings, '{webhooks}', coalesce((
    SELECT jsonb_agg(jsonb_build_object('url', kept.url))
    FROM (
        SELECT DISTINCT url FROM jsonb_array_elements_text(settings -> 'webhooks') AS url
        WHERE url ~ '^https://[A-Za-z0-9._-]+(:[1-9][0-9]{0,3}|:[1-5][0-9]{4})?([/?][!-"$-\[\]-~]*)?$'
            AND url !~ '^https://(169\.254|22[4-9]|23[0-9]|0\.0\.0\.0)' AND length(url) <= 2048
        ORDER BY url LIMIT 10
    ) AS kept
), '[]'))
WHERE jsonb_typeof(settings -> 'webhooks') = 'array'
"""


def upgrade() -> None:
    op.create_table(
        "announcements",
        sa.Column("announcement_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("announced_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("contract", sa.JSON(), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=True),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("commit_sha", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "kind IN ('decided', 'closed', 'breached', 'set_up_fault')",
            name=op.f("ck_announcements_kind"),
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.experiment_id"],
            name=op.f("fk_announcements_experiment_id"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.project_id"], name=op.f("fk_announcements_project_id")
        ),
        sa.PrimaryKeyConstraint("announcement_id", name=op.f("pk_announcements")),
        sa.UniqueConstraint(
            "experiment_id",
            "kind",
            "subject",
            name=op.f("uq_announcements_experiment_id_kind_subject"),
        ),
    )
    op.create_table(
        "deliveries",
        sa.Column("announcement_id", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("given_up_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "delivered_at IS NULL OR given_up_at IS NULL", name=op.f("ck_deliveries_end")
        ),
        sa.ForeignKeyConstraint(
            ["announcement_id"],
            ["announcements.announcement_id"],
            name=op.f("fk_deliveries_announcement_id"),
        ),
        sa.PrimaryKeyConstraint("announcement_id", "target", name=op.f("pk_deliveries")),
    )
    op.create_index(
        op.f("ix_deliveries_next_attempt_at"),
        "deliveries",
        ["next_attempt_at"],
        unique=False,
        postgresql_where=sa.text("delivered_at IS NULL AND given_up_at IS NULL"),
    )
    op.create_table(
        "freezes",
        sa.Column("freeze_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("frozen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("unfrozen_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("freeze_id", name=op.f("pk_freezes")),
    )
    op.create_index(
        "ix_freezes_in_force",
        "freezes",
        [sa.text("(unfrozen_at IS NULL)")],
        unique=True,
        postgresql_where=sa.text("unfrozen_at IS NULL"),
    )
    op.execute(_KNOWN)
    op.execute(_SETTINGS)
