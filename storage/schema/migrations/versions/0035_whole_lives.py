"""An experiment that was over when it was first read needs no row of each of its units."""

from alembic import op

revision = "0035"
down_revision = "0034"

_TABLE = """
CREATE TABLE whole_lives (
    experiment_id TEXT NOT NULL,
    units BIGINT NOT NULL,
    CONSTRAINT pk_whole_lives PRIMARY KEY (experiment_id),
    CONSTRAINT fk_whole_lives_experiment_id
        FOREIGN KEY (experiment_id) REFERENCES experiments (experiment_id)
)
"""


def upgrade() -> None:
    """Makes the table: experiments that were read before have a row of each unit."""
    op.execute(_TABLE)
