"""Keys may be made that only read."""

from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    """Admits a fourth kind of keys."""
    op.execute("ALTER TABLE keys DROP CONSTRAINT ck_keys_kind")
    op.execute(
        "ALTER TABLE keys ADD CONSTRAINT ck_keys_kind"
        " CHECK (kind IN ('write', 'public', 'project', 'read'))"
    )
