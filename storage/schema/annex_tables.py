"""The annex tables, which no request of the interface, no tick and no tool reads or writes.

With them `metadata` is the whole store.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from storage.schema.tables import metadata, new_table, project_column, time_column

__all__ = ["metadata"]

# --- Who is signed in to the dashboard ----------------------------------------------------------

# A link that signs in to the dashboard once; its row goes with its use.
sign_in_links = new_table(
    "sign_in_links",
    # SHA-256 of the code: the code itself is in no table.
    Column("digest", LargeBinary, primary_key=True),
    project_column(),
    Column("role", Text, nullable=False),
    time_column("created_at"),
    time_column("expires_at"),
    CheckConstraint("role IN ('read', 'owner')", name="role"),
)

# Who is signed in to the dashboard.
sign_ins = new_table(
    "sign_ins",
    # SHA-256 of the cookie.
    Column("digest", LargeBinary, primary_key=True),
    project_column(),
    Column("role", Text, nullable=False),
    # The key by which a person came in, with which the sign-in ends.
    Column("key_digest", LargeBinary, ForeignKey("keys.digest")),
    time_column("created_at"),
    time_column("expires_at"),
    # The visitor's, where an authenticating proxy vouches for it: it must go on to.
    Column("name", Text),
    CheckConstraint("role IN ('read', 'owner')", name="role"),
)

# --- How the service itself fares ---------------------------------------------------------------

# What a night's random splits of a project's own control showed; no verdict reads it.
own_splits = new_table(
    "own_splits",
    Column("project_id", Integer, ForeignKey("projects.project_id"), primary_key=True),
    Column("night", Date, primary_key=True),
    Column("document", JSONB, nullable=False),
)

# The last result of each other check of Dagster's.
check_results = new_table(
    "check_results",
    Column("name", Text, primary_key=True),
    Column("passed", Boolean, nullable=False),
    time_column("checked_at"),
)

# When somebody last showed that the store can be written; a single row.
write_probe = new_table(
    "write_probe",
    Column("place", Integer, primary_key=True, autoincrement=False, server_default=text("1")),
    time_column("written_at"),
    CheckConstraint("place = 1", name="one"),
)

# When the whole service was frozen by hand, and why; the open freeze is in force.
freezes = new_table(
    "freezes",
    Column("freeze_id", Integer, Identity(), primary_key=True),
    time_column("frozen_at"),
    Column("reason", Text, nullable=False),
    time_column("unfrozen_at", nullable=True),
    Index(
        "ix_freezes_in_force",
        text("(unfrozen_at IS NULL)"),
        unique=True,
        postgresql_where=text("unfrozen_at IS NULL"),
    ),
)

# --- The sealed log: its files, its runs and its gaps -------------------------------------------

# Files of the lake that were listed once, until they are deleted.
unlisted_files = new_table(
    "unlisted_files", Column("file", Text, primary_key=True), time_column("unlisted_at")
)

# Who was forgotten since files were last rewritten: readers of files leave these events out.
erasures = new_table(
    "erasures",
    Column("erasure_id", BigInteger, Identity(), primary_key=True),
    project_column(),
    Column("session_id", Text),
    Column("pseudonym", LargeBinary),
    time_column("erased_at"),
    # True if only the public key's events of the session were erased: it may be another's.
    Column("public_only", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("num_nonnulls(session_id, pseudonym) = 1", name="one"),
    Index(None, "project_id"),
)

# When a run last sealed, and the error that ended it, if any.
sealing_runs = new_table(
    "sealing_runs",
    Column("place", Integer, primary_key=True, autoincrement=False, server_default=text("1")),
    time_column("ended_at"),
    Column("error", Text),
    CheckConstraint("place = 1", name="one"),
)

# A day of runtime events that is gone, and when it went; of a day that went twice the last time.
dropped_days = new_table(
    "dropped_days", Column("day", Date, primary_key=True), time_column("dropped_at")
)

# That somebody was forgotten, and how much of theirs; not who.
forgettings = new_table(
    "forgettings",
    project_column(),
    time_column("forgotten_at"),
    Column("kind", Text, nullable=False),
    Column("runtime_events", BigInteger, nullable=False),
    Column("revenue_events", BigInteger, nullable=False),
    Column("exposures", BigInteger, nullable=False),
    CheckConstraint("kind IN ('user_ref', 'session', 'unit')", name="kind"),
    Index(None, "project_id"),
)

# --- What the pipeline derives -----------------------------------------------------------------

# Experiments that were read for the first time when nothing of theirs was left to come, as those of
# an import are. Of their units the few rows alone are stored that evidence is read from.
whole_lives = new_table(
    "whole_lives",
    Column("experiment_id", Text, ForeignKey("experiments.experiment_id"), primary_key=True),
    Column("units", BigInteger, nullable=False),
)

# Everything that the pipeline fills from the log, in its order.
_NAMES = (
    *("exposures", "strata", "sightings", "block_units", "block_names", "conversions", "amounts"),
    *("cells", "cursors", "whole_lives", "next_looks", "evidence", "publication_progress"),
    "verdicts",
)
DERIVED = tuple(metadata.tables[name] for name in _NAMES)
