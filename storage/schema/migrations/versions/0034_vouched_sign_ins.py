"""A sign-in may be of somebody for whom a proxy vouches by name."""

from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    """Keeps the name beside the sign-in."""
    op.execute("ALTER TABLE sign_ins ADD COLUMN name TEXT")
