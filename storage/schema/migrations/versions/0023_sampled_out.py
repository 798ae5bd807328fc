"""How many events of each project were outside its sample, as the API counted them."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0015"


def upgrade() -> None:
    op.add_column(
        "admissions",
        sa.Column("sampled_out", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
    )
