"""Announcements that an open experiment lost its control."""

from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.drop_constraint(op.f("ck_announcements_kind"), "announcements")
    op.create_check_constraint(
        op.f("ck_announcements_kind"),
        "announcements",
        "kind IN ('decided', 'closed', 'breached', 'set_up_fault', 'base_moved')",
    )
