"""Sessions may be erased of those events alone that came with the public key."""

from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    """Adds the column: until now all of a session went."""
    op.execute("ALTER TABLE erasures ADD COLUMN public_only boolean NOT NULL DEFAULT false")
