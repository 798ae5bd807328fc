"""Notes on experiments, labels of keys, and deliveries that only try a webhook."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("experiments", sa.Column("note", sa.Text))
    op.add_column("keys", sa.Column("label", sa.Text))
    op.alter_column("announcements", "experiment_id", nullable=True)
    op.drop_constraint(op.f("ck_announcements_kind"), "announcements")
    op.create_check_constraint(
        op.f("ck_announcements_kind"),
        "announcements",
        "kind IN ('decided', 'closed', 'breached', 'set_up_fault', 'base_moved', 'test')",
    )
    op.create_check_constraint(
        op.f("ck_announcements_experiment"),
        "announcements",
        "(experiment_id IS NULL) = (kind = 'test')",
    )
