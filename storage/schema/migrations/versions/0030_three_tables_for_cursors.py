"""Cursors hold how far the log was read alone: next looks and publishing get tables of their own."""

from alembic import op

revision = "0030"
down_revision = "0029"

_NEXT_LOOKS = """
CREATE TABLE next_looks (
    experiment_id TEXT NOT NULL,
    units_since TIMESTAMPTZ NOT NULL,
    crowd_since TIMESTAMPTZ,
    forced_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT pk_next_looks PRIMARY KEY (experiment_id),
    CONSTRAINT fk_next_looks_experiment_id
        FOREIGN KEY (experiment_id) REFERENCES experiments (experiment_id)
);
INSERT INTO next_looks
SELECT units.experiment_id, units.at, crowd.at, forced.at
FROM cursors AS units
JOIN cursors AS forced ON forced.stage = 'wakes' AND forced.experiment_id = units.experiment_id
LEFT JOIN cursors AS crowd ON crowd.stage = 'crowd' AND crowd.experiment_id = units.experiment_id
WHERE units.stage = 'units'
"""
_PROGRESS = """
CREATE TABLE publication_progress (
    experiment_id TEXT NOT NULL,
    staged_to TIMESTAMPTZ NOT NULL,
    published_to TIMESTAMPTZ,
    CONSTRAINT pk_publication_progress PRIMARY KEY (experiment_id),
    CONSTRAINT fk_publication_progress_experiment_id
        FOREIGN KEY (experiment_id) REFERENCES experiments (experiment_id)
);
INSERT INTO publication_progress
SELECT staged.experiment_id, staged.at, published.at
FROM cursors AS staged
LEFT JOIN cursors AS published
  ON published.stage = 'published' AND published.experiment_id = staged.experiment_id
WHERE staged.stage = 'staged'
"""
_CURSORS = """
DELETE FROM cursors WHERE stage IN ('units', 'crowd', 'wakes', 'staged', 'published');
ALTER TABLE cursors ADD CONSTRAINT ck_cursors_stage CHECK (
    stage IN ('exposures', 'conversions') OR starts_with(stage, 'cells/')
)
"""


def upgrade() -> None:
    for statements in (_NEXT_LOOKS, _PROGRESS, _CURSORS):
        op.execute(statements)
