"""Makes the whole store at once, from the tables of this version; no earlier store is upgraded."""

from alembic import op

from storage.schema.annex_tables import metadata
from storage.schema.migrate import VERSION
from storage.schema.tables import installation

revision = VERSION
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
    op.execute(installation.insert())
