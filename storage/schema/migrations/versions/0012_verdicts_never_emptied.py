"""No command empties the verdicts any more: a rebuild fills tables aside and swaps them in."""

from alembic import op

revision = "0012"
down_revision = "0011"

_GUARD = """
CREATE OR REPLACE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'verdicts are never emptied'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF OLD.decided THEN
        RAISE EXCEPTION 'experiment % is decided: its verdict is never rewritten',
            OLD.experiment_id USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END
$$
"""


def upgrade() -> None:
    op.execute(_GUARD)
