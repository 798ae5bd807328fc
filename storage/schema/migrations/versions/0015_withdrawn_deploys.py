"""Deploys that were posted by mistake and withdrawn, and the row that shows that a store is writable."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0012"

_UNIQUE = {
    "project_id_environment_commit_sha_deployed_at": (
        *("project_id", "environment", "commit_sha", "deployed_at"),
    ),
    "project_id_idempotency_key": ("project_id", "idempotency_key"),
}


def upgrade() -> None:
    op.add_column("deploys", sa.Column("withdrawn_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("deploys", sa.Column("graph_before", sa.Text(), nullable=True))
    op.create_foreign_key(
        op.f("fk_deploys_graph_before"), "deploys", "graphs", ["graph_before"], ["graph_id"]
    )
    # Which of them brought a graph is not known any more: their withdrawal changes none.
    op.execute("UPDATE deploys SET graph_before = graph_id")
    for name, columns in _UNIQUE.items():
        op.drop_constraint(op.f(f"uq_deploys_{name}"), "deploys", type_="unique")
        op.create_index(
            op.f(f"ix_deploys_{name}"),
            "deploys",
            list(columns),
            unique=True,
            postgresql_where=sa.text("withdrawn_at IS NULL"),
        )
    op.create_table(
        "write_probe",
        sa.Column(
            "place",
            sa.Integer(),
            server_default=sa.text("1"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("written_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("place = 1", name=op.f("ck_write_probe_one")),
        sa.PrimaryKeyConstraint("place", name=op.f("pk_write_probe")),
    )
