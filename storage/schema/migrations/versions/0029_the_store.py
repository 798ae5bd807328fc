"""Makes the whole store at once, by the SQL beside this file; no older store is upgraded."""

from pathlib import Path

from alembic import op

revision = "0029"
down_revision = None


def upgrade() -> None:
    op.execute(Path(__file__).with_suffix(".sql").read_text())
