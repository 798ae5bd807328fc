"""An index on the blocks of cells, by which a run reports the days that it added to."""

from alembic import op

revision = "0024"
down_revision = "0022"


def upgrade() -> None:
    op.create_index(op.f("ix_cells_block"), "cells", ["block"], postgresql_using="brin")
