"""The tables of the store: the log of received events, and the tables derived from it.

Those that no request of the interface and no tick reads are in `annex_tables.py`.
"""

from typing import Any

from sqlalchemy import (
    ARRAY,
    DDL,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.schema import SchemaItem

from storage.schema.encoding import (
    ARMS,
    LEFT_OUT,
    SIGHTING_KINDS,
    arm_name,
    listed,
    moment,
    sighting_name,
)

# No schema in the names: every connection's search path puts SCHEMA first, so that a reading as
# of an earlier time can lay temporary tables of the same names over the derived ones.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def new_table(name: str, *members: SchemaItem, **options: Any) -> Table:  # noqa: ANN401 - of dialects
    """Adds a table to the store."""
    return Table(name, metadata, *members, **options)


def time_column(name: str, *, nullable: bool = False) -> Column[object]:
    """Returns a column of times."""
    return Column(name, DateTime(timezone=True), nullable=nullable)


def project_column() -> Column[object]:
    """Returns the column of the project that a row belongs to."""
    return Column("project_id", Integer, ForeignKey("projects.project_id"), nullable=False)


def _experiment() -> Column[object]:
    return Column("experiment_id", Text, ForeignKey("experiments.experiment_id"), nullable=False)


def _experiment_of_unit() -> Column[object]:
    # Without a foreign key, which would be checked for each unit: no experiment is ever deleted,
    # and the pipeline alone writes here, of experiments that it has just read.
    return Column("experiment_id", Text, nullable=False)


# Columns of derived tables, which hold what the pipeline's text computes, in its units; `words` is
# SQL for what a person reads instead.


def _microseconds(name: str, *, nullable: bool = False) -> Column[object]:
    """Returns a column of times, in whole microseconds since the epoch."""
    return Column(name, BigInteger, nullable=nullable, info={"words": moment})


def _arm(*, nullable: bool = False) -> Column[object]:
    return Column("arm", SmallInteger, nullable=nullable, info={"words": arm_name})


def _exposure_of_unit() -> tuple[Column[object], ...]:
    """Block, arm and stratum of the unit's exposure, so that no reader joins all units."""
    return (_microseconds("block", nullable=True), _arm(nullable=True), Column("stratum", Text))


# --- Who may speak -------------------------------------------------------------------------

projects = new_table(
    "projects",
    Column("project_id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    # Only what differs from the defaults: a default improved later reaches every project
    # that never chose otherwise.
    Column("settings", JSONB, nullable=False, server_default=text("'{}'")),
    Column("current_graph_id", Text),
    time_column("created_at"),
)

keys = new_table(
    "keys",
    # SHA-256 of the key: the key itself is in no table.
    Column("digest", LargeBinary, primary_key=True),
    project_column(),
    Column("kind", Text, nullable=False),
    Column("display", Text, nullable=False),
    time_column("created_at"),
    time_column("revoked_at", nullable=True),
    # To some minutes: when a worker last noted that the key was presented.
    time_column("last_used_at", nullable=True),
    # Who or what holds it, in the owner's words.
    Column("label", Text),
    CheckConstraint("kind IN ('write', 'public', 'project', 'read')", name="kind"),
    Index(None, "project_id"),
)

# --- The log: what was received --------------------------------------------------------------

graphs = new_table(
    "graphs",
    Column("graph_id", Text, primary_key=True),
    project_column(),
    Column("digest", LargeBinary, nullable=False),
    # JSON rather than JSONB: the document is handed back as it came, order of members included.
    Column("document", JSON, nullable=False),
    Column("route_count", Integer, nullable=False),
    time_column("uploaded_at"),
    UniqueConstraint("project_id", "digest"),
)

deploys = new_table(
    "deploys",
    Column("deploy_id", Text, primary_key=True),
    project_column(),
    Column("environment", Text, nullable=False),
    Column("commit_sha", Text, nullable=False),
    Column("commit", JSON, nullable=False),
    Column("base_commit", Text),
    Column("base_assumed", Boolean, nullable=False),
    time_column("deployed_at"),
    time_column("recorded_at"),
    Column("graph_id", Text, ForeignKey("graphs.graph_id")),
    Column("diff", JSON),
    Column("allocation", Double),
    Column("affected_routes", ARRAY(Text), nullable=False),
    Column("affected_routes_complete", Boolean, nullable=False),
    Column("idempotency_key", Text),
    # SHA-256 of the normalised body: the same deploy with another body is a conflict.
    Column("digest", LargeBinary, nullable=False),
    # Posted by mistake, and taken back then: only experiments bound before go on reading it.
    time_column("withdrawn_at", nullable=True),
    # The project's current graph until this deploy was recorded: a new graph replaced it.
    Column("graph_before", Text, ForeignKey("graphs.graph_id")),
    *(
        Index(
            None, "project_id", *members, unique=True, postgresql_where=text("withdrawn_at IS NULL")
        )
        for members in (("environment", "commit_sha", "deployed_at"), ("idempotency_key",))
    ),
    CheckConstraint("allocation BETWEEN 0 AND 1", name="allocation"),
    Index(None, "project_id", "recorded_at"),
)

# A commit's changes and base in an environment, as first recorded there: what lineage is
# computed from. A base may become known later than the changes, by a registration.
commits = new_table(
    "commits",
    project_column(),
    Column("environment", Text, nullable=False),
    Column("commit_sha", Text, nullable=False),
    Column("changes", ARRAY(Text), nullable=False),
    Column("base", Text),
    time_column("recorded_at"),
    time_column("base_recorded_at", nullable=True),
    # What users had at the first deploy that named no base; a named base takes its place.
    Column("assumed_base", Text),
    time_column("assumed_at", nullable=True),
    PrimaryKeyConstraint("project_id", "environment", "commit_sha"),
)

# How a project's commits were written: the id under which each became known, and those that wrote
# more of it than any before.
commit_ids = new_table(
    "commit_ids",
    project_column(),
    Column("commit_sha", Text, nullable=False),
    Column("id", Text, nullable=False),
    time_column("recorded_at"),
    PrimaryKeyConstraint("project_id", "id"),
)

# Which builds users were served, by block of 5 minutes: sessions by the commit of their first event
# there that names a commit. See storage/log/seen_commits.py.
seen_commits = new_table(
    "seen_commits",
    project_column(),
    Column("environment", Text, nullable=False),
    time_column("block"),
    Column("commit_sha", Text, nullable=False),
    Column("sessions", Integer, nullable=False),
    # When the block's exposures closed.
    time_column("closed_at"),
    PrimaryKeyConstraint("project_id", "environment", "block", "commit_sha"),
)

# How far the log was read for that; a single row.
seen_marks = new_table(
    "seen_marks",
    Column("place", Integer, primary_key=True, autoincrement=False, server_default=text("1")),
    time_column("read_to"),
    CheckConstraint("place = 1", name="one"),
)

# No key: an append of an event without user costs a single tuple. A tick reads by time of receipt,
# which the block-range index finds because the log grows in that order.
runtime_events = new_table(
    "runtime_events",
    Column("project_id", Integer, nullable=False),
    Column("environment", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    time_column("occurred_at"),
    time_column("received_at"),
    Column("commit_sha", Text),
    Column("route", Text),
    Column("pseudonym", LargeBinary),
    # Sent with the write key, hence from a server: `trusted_identity` asks.
    Column("trusted", Boolean, nullable=False),
    Column("event_id", Text),
    # In whole millionths, so that sums are exact on every engine; see domain/millionths.py.
    Column("value", BigInteger),
    Column("flags", JSONB),
    Column("properties", JSONB),
    # A router's token holds for what the event says of its session: `signed_assignments` asks.
    Column("signed", Boolean, nullable=False, server_default=text("false")),
    # Time by the sender's clock when it sent the request; `occurred_at` is by the same clock.
    time_column("sent_at", nullable=True),
    # Number of the extra file if the event came as history after its hour was sealed, else null,
    # which costs nothing: see storage/log/parts.py.
    Column("part", SmallInteger),
    CheckConstraint("value BETWEEN -1000000000000000 AND 1000000000000000", name="value"),
    Index(None, "received_at", postgresql_using="brin"),
    # By which a session finds its user; events that name none cost nothing here.
    Index(None, "project_id", "session_id", postgresql_where=text("pseudonym IS NOT NULL")),
    postgresql_partition_by="RANGE (received_at)",
)

revenue_events = new_table(
    "revenue_events",
    project_column(),
    Column("idempotency_key", Text, nullable=False),
    Column("event", Text, nullable=False),
    time_column("occurred_at"),
    time_column("received_at"),
    Column("amount_value", BigInteger),
    Column("amount_currency", Text),
    Column("pseudonym", LargeBinary),
    Column("session_id", Text),
    Column("environment", Text),
    Column("attributes", JSON),
    Column("digest", LargeBinary, nullable=False),
    PrimaryKeyConstraint("project_id", "idempotency_key"),
    Index(None, "received_at"),
)

# Up to when events of a day came to an environment by import or replay, and when they came last:
# whoever registers after them could have looked first, and who read the day before has not read
# them.
histories = new_table(
    "histories",
    project_column(),
    Column("environment", Text, nullable=False),
    Column("day", Date, nullable=False),
    time_column("newest_at"),
    time_column("brought_at"),
    PrimaryKeyConstraint("project_id", "environment", "day"),
)

experiments = new_table(
    "experiments",
    Column("experiment_id", Text, primary_key=True),
    project_column(),
    time_column("registered_at"),
    # What the registration named itself; everything else is a default taken at the binding.
    Column("request", JSONB, nullable=False),
    Column("target_metric", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("treatment_commit", Text),
    Column("control_commit", Text),
    # D, the change under test: lineage(treatment) - lineage(control), frozen at the binding.
    Column("change", ARRAY(Text)),
    Column("deploy_id", Text, ForeignKey("deploys.deploy_id")),
    time_column("bound_at", nullable=True),
    # What the binding knew and the freeze could no longer read as it was.
    Column("binding", JSONB),
    # When the pipeline froze its policy, from the log as of the binding.
    time_column("frozen_at", nullable=True),
    # What the log answered before its policy is frozen, and when its freeze was last gone on with.
    Column("answers", JSONB),
    time_column("answered_at", nullable=True),
    # Why it has no policy: its target's threshold could not be frozen.
    Column("cannot_start", Text),
    time_column("starts_at", nullable=True),
    # When its canary began, where exposure begins with a late registration instead.
    time_column("declared_at", nullable=True),
    # Everything that the verdict reads except events and deploys.
    Column("policy", JSONB),
    Column("attempt", Integer, nullable=False, server_default=text("1")),
    time_column("closed_at", nullable=True),
    # What the team wants to remember of it: no verdict reads it.
    Column("note", Text),
    CheckConstraint(
        "(bound_at IS NULL) = (binding IS NULL) AND (bound_at IS NULL) = (change IS NULL)"
        " AND (bound_at IS NULL) = (deploy_id IS NULL)",
        name="bound",
    ),
    CheckConstraint(
        "(frozen_at IS NULL) = (policy IS NULL) AND (frozen_at IS NULL) = (starts_at IS NULL)"
        " AND (frozen_at IS NULL OR bound_at IS NOT NULL AND cannot_start IS NULL)",
        name="frozen",
    ),
    # Those that wait for the pipeline.
    Index(
        "experiments_to_freeze",
        "bound_at",
        postgresql_where=text("frozen_at IS NULL AND cannot_start IS NULL"),
    ),
    Index(None, "project_id", "registered_at"),
    # A registration asks for the experiments of its change, commit and deploy. A list of pending
    # entries would be read as a whole by each.
    Index(
        "experiments_by_change",
        "change",
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
    ),
    Index(
        "experiments_of_commit",
        "project_id",
        text(
            "(CASE WHEN control_commit IS DISTINCT FROM treatment_commit THEN treatment_commit END)"
        ),
    ),
    Index(None, "project_id", "treatment_commit"),
    Index(None, "deploy_id"),
)

# Changes that asked for a flag or a canary's share: queued, placed, ended.
places = new_table(
    "places",
    Column("place_id", Text, primary_key=True),
    project_column(),
    Column("environment", Text, nullable=False),
    Column("change", Text, nullable=False),
    # What was asked for, as the queue takes it.
    Column("request", JSONB, nullable=False),
    Column("kind", Text),
    Column("share", Double),
    Column("expected_hours", Double),
    Column("experiment_id", Text, ForeignKey("experiments.experiment_id")),
    time_column("asked_at"),
    time_column("placed_at", nullable=True),
    time_column("ended_at", nullable=True),
    Column("outcome", Text),
    # Why it was refused.
    Column("detail", Text),
    CheckConstraint("(ended_at IS NULL) = (outcome IS NULL)", name="end"),
    CheckConstraint("(placed_at IS NULL) = (kind IS NULL)", name="kind"),
    Index(
        None,
        *("project_id", "environment", "change"),
        unique=True,
        postgresql_where=text("ended_at IS NULL"),
    ),
    Index(None, "project_id", "asked_at"),
)

# --- What is derived from the log --------------------------------------------------------------

# A unit's first qualifying event, final once its block has closed.
exposures = new_table(
    "exposures",
    _experiment_of_unit(),
    Column("unit", Text, nullable=False),
    _microseconds("exposed_at"),
    _microseconds("block"),
    _arm(),
    Column("stratum", Text),
    # The build that served the exposure, as a known commit.
    Column("commit_sha", Text, nullable=False),
    Column("pseudonym", LargeBinary),
    # 1 of an arm that the published draw gives the unit, 0 of another, null where nothing is drawn.
    Column("as_drawn", SmallInteger),
    # The name of the event that exposed it.
    Column("event", Text, nullable=False),
    PrimaryKeyConstraint("experiment_id", "unit"),
    CheckConstraint(f"arm IN {listed(range(len(ARMS)))}", name="arm"),
    Index(None, "experiment_id", "block"),
    Index(None, "experiment_id", "pseudonym", postgresql_where=text("pseudonym IS NOT NULL")),
)

# A commit that stands for each stratum: its lineage less the change, with the values of other
# flags, is the stratum's set, of which the name of the stratum is the digest. Where there are such
# values they stand here, and the digest of the lineage without them.
strata = new_table(
    "strata",
    _experiment(),
    Column("stratum", Text, nullable=False),
    Column("commit_sha", Text, nullable=False),
    Column("lineage", Text),
    Column("flags", JSONB),
    PrimaryKeyConstraint("experiment_id", "stratum"),
)

# What was seen of a unit that is no exposure, and when that became known; counted, never tested.
sightings = new_table(
    "sightings",
    _experiment_of_unit(),
    Column("kind", SmallInteger, nullable=False, info={"words": sighting_name}),
    Column("unit", Text, nullable=False),
    _microseconds("sighted_at"),
    # A crossover's exposure; for other kinds, since the start, the arm of the earliest event.
    *_exposure_of_unit(),
    # The event's name, where it names no build.
    Column("event", Text),
    PrimaryKeyConstraint("experiment_id", "kind", "unit"),
    CheckConstraint(f"kind IN {listed(SIGHTING_KINDS)}", name="kind"),
)

# The counts of a block's exposures, so that no tick counts them again: its units by arm, and those
# that are left out also by the arm that served them; `own` are the units that the treatment's own
# commit served. A user's second session is counted in its block, by the arm of the first session,
# and once more where both got the same arm.
block_units = new_table(
    "block_units",
    _experiment(),
    _microseconds("block"),
    *(
        Column(name, BigInteger, nullable=False, server_default="0")
        for name in (
            *ARMS[:3],
            *LEFT_OUT,
            *(name for name in ARMS[3:] if not name.endswith("partial")),
            "own",
            *("again_treatment", "kept_treatment", "again_control", "kept_control"),
            # Units that have the arm which the published draw gives them, or do not.
            *("as_drawn", "off_draw"),
        )
    ),
    PrimaryKeyConstraint("experiment_id", "block"),
)

# How many units of a block an event of each name exposed: where hardly any unit names a build by a
# name, its events without a build are no arrivals.
block_names = new_table(
    "block_names",
    _experiment(),
    _microseconds("block"),
    Column("event", Text, nullable=False),
    Column("units", BigInteger, nullable=False),
    PrimaryKeyConstraint("experiment_id", "event", "block"),
)

# The earliest receipt of an outcome of an exposed unit: on time if before its block's close.
conversions = new_table(
    "conversions",
    _experiment_of_unit(),
    Column("metric", Text, nullable=False),
    Column("unit", Text, nullable=False),
    _microseconds("received_at"),
    # 1 of an outcome that is late, else 0.
    Column("late", SmallInteger, nullable=False),
    # The exposure of a late outcome; else null.
    *_exposure_of_unit(),
    PrimaryKeyConstraint("experiment_id", "metric", "unit"),
    Index(None, "experiment_id", "metric", postgresql_where=text("late = 1")),
)

# What an exposed unit brought of a mean or ratio, event by event; the key makes another delivery
# of the same event the same row. Of a metric with a threshold the events that were its first, as
# far as was received by then; the key is when they occurred. Beside them, under a name of their
# own, a unit's first four events and those of the smallest hash so far; the key is the hash, and
# the event's position.
amounts = new_table(
    "amounts",
    _experiment_of_unit(),
    Column("metric", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("event_key", Text, nullable=False),
    _microseconds("received_at"),
    # In whole millionths; an amount of revenue can be larger than a `value` of an event. A ratio's
    # counted events have 2³¹, and the events of its `per` have 1.
    Column("value", BigInteger, nullable=False),
    PrimaryKeyConstraint("experiment_id", "metric", "unit", "event_key"),
)

# Units and conversions of both arms in a block and stratum: the sufficient statistics.
cells = new_table(
    "cells",
    _experiment(),
    Column("metric", Text, nullable=False),
    _microseconds("block"),
    Column("stratum", Text, nullable=False),
    Column("n1", BigInteger, nullable=False),
    Column("x1", BigInteger, nullable=False),
    Column("n0", BigInteger, nullable=False),
    Column("x0", BigInteger, nullable=False),
    # Sums and sums of squares of a metric of kind `mean` or `ratio`; of a ratio then those of what
    # it is taken over, and of the products of both.
    *(Column(name, Double) for name in ("y1", "yy1", "y0", "yy0")),
    *(Column(name, Double) for name in ("d1", "dd1", "yd1", "d0", "dd0", "yd0")),
    PrimaryKeyConstraint("experiment_id", "metric", "block", "stratum"),
    # A run reports whole days of all experiments; blocks close in order.
    Index(None, "block", postgresql_using="brin"),
    CheckConstraint("x1 BETWEEN 0 AND n1 AND x0 BETWEEN 0 AND n0", name="counts"),
)

# How far each stage has read the log for each experiment; cells close by metric.
cursors = new_table(
    "cursors",
    Column("stage", Text, nullable=False),
    Column("experiment_id", Text, nullable=False),
    time_column("at"),
    PrimaryKeyConstraint("stage", "experiment_id"),
    CheckConstraint(
        "stage IN ('exposures', 'conversions') OR starts_with(stage, 'cells/')", name="stage"
    ),
)

# When an experiment's next look can come; of an experiment without a row it is computed at once.
next_looks = new_table(
    "next_looks",
    Column("experiment_id", Text, ForeignKey("experiments.experiment_id"), primary_key=True),
    time_column("units_since"),
    time_column("crowd_since", nullable=True),
    time_column("forced_at"),
)

# Evidence as computed, not yet seen by any reader: `verdicts` publishes it.
evidence = new_table(
    "evidence",
    Column("experiment_id", Text, ForeignKey("experiments.experiment_id"), primary_key=True),
    # JSON rather than JSONB: it keeps the bytes that were written.
    Column("document", JSON, nullable=False),
    Column("contract", JSON, nullable=False),
    time_column("as_of", nullable=True),
    time_column("next_look_at", nullable=True),
)

# Up to which block of outcomes an experiment's evidence was computed, and published.
publication_progress = new_table(
    "publication_progress",
    Column("experiment_id", Text, ForeignKey("experiments.experiment_id"), primary_key=True),
    time_column("staged_to"),
    time_column("published_to", nullable=True),
)

verdicts = new_table(
    "verdicts",
    Column("experiment_id", Text, ForeignKey("experiments.experiment_id"), primary_key=True),
    project_column(),
    # The verdict contract, served to the byte.
    Column("contract", JSON, nullable=False),
    Column("evidence", JSON),
    Column("verdict", Text, nullable=False),
    Column("abstain_reason", Text),
    Column("decided", Boolean, nullable=False),
    # The look at which the verdict stands; null before the first.
    time_column("as_of", nullable=True),
    time_column("next_look_at", nullable=True),
    time_column("published_at"),
    CheckConstraint("verdict IN ('keep', 'rollback', 'iterate', 'abstain')", name="verdict"),
    CheckConstraint(
        "abstain_reason IN ('power', 'non_identifiable', 'interacting')", name="abstain_reason"
    ),
    CheckConstraint("(verdict = 'abstain') = (abstain_reason IS NOT NULL)", name="reason"),
    Index(None, "project_id", "decided"),
)

# What is measured after a verdict while both arms are still served; the verdict stands meanwhile.
follow_ups = new_table(
    "follow_ups",
    Column("experiment_id", Text, ForeignKey("experiments.experiment_id"), primary_key=True),
    # Exposure from the first block after the deciding look to the planned end.
    time_column("begins_at"),
    time_column("ends_at"),
    # Final at the planned end; stopped where an arm was gone before it.
    Column("state", Text, nullable=False),
    # By all units of the experiment, and beside it that of the later ones alone; null at first.
    Column("effect", JSON),
    # Logarithm of the whole experiment's e-value, units before the verdict included.
    Column("log_e", Double),
    # The look; null before the first.
    time_column("as_of", nullable=True),
    # Up to which block of exposure outcomes were read; null before the first time.
    time_column("read_to", nullable=True),
    CheckConstraint("state IN ('running', 'stopped', 'final')", name="state"),
)

# Scales of the effect with weights that a project's changes taught: of a day, for later ones.
learned_priors = new_table(
    "learned_priors",
    Column("project_id", Integer, ForeignKey("projects.project_id"), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("weights", JSONB, nullable=False),
)

# What a project had judged and kept in the 30 days before a day: the looks of that day read it.
keep_records = new_table(
    "keep_records",
    Column("project_id", Integer, ForeignKey("projects.project_id"), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("judged", Integer, nullable=False),
    Column("kept", Integer, nullable=False),
)

# Experiments whose own data breaks a stage of the pipeline: every other experiment goes on.
set_aside = new_table(
    "set_aside",
    Column("experiment_id", Text, ForeignKey("experiments.experiment_id"), primary_key=True),
    # The first stage that cannot be computed; the stages before it go on.
    Column("stage", Text, nullable=False),
    # What kind of error, and where in the code: no value of any row.
    Column("error", Text, nullable=False),
    time_column("first_failed_at"),
    time_column("last_tried_at"),
    Column("tries", Integer, nullable=False),
    CheckConstraint(
        "stage IN ('experiments', 'exposures', 'cells', 'evidence', 'verdicts')", name="stage"
    ),
)

# --- How the service itself fares: what its monitor reads --------------------------------------

# The last time that each step of the pipeline ended.
pipeline_steps = new_table(
    "pipeline_steps",
    Column("stage", Text, primary_key=True),
    time_column("ended_at"),
    Column("seconds", Double, nullable=False),
)

# When the fast schedule last had nothing due, or a run of the pipeline last ended well; a row.
ticks = new_table(
    "ticks",
    Column("place", Integer, primary_key=True, autoincrement=False, server_default=text("1")),
    time_column("succeeded_at"),
    # Blocks that had closed by then hold no unit that waits for a run.
    time_column("looked_to", nullable=True),
    CheckConstraint("place = 1", name="one"),
)

# How often an error ended a tick of the fast schedule or a step of a run, by stage.
failed_ticks = new_table(
    "failed_ticks",
    Column("stage", Text, primary_key=True),
    Column("failures", BigInteger, nullable=False),
    time_column("failed_at"),
)

# The last self-check of each day: whether a rebuild from the log equals what stands.
self_checks = new_table(
    "self_checks",
    Column("day", Date, primary_key=True),
    # Null where that is unknown, as of a day whose events are gone.
    Column("equal", Boolean),
    # Those of which the rows, or a decided verdict, differ.
    Column("experiments", ARRAY(Text), nullable=False, server_default="{}"),
    time_column("checked_at"),
    Index(None, "day", postgresql_where=text("NOT equal")),
)

# --- Whether projects are wired right: no verdict depends on it -----------------------------------

# The names of runtime and revenue events that came: since when, and to an hour when last, and
# whether a write key sent the name; and to an hour when an event of the name came last with the
# public key. What came as history was there from the beginning.
seen_names = new_table(
    "seen_names",
    project_column(),
    Column("event", Text, nullable=False),
    time_column("first_at"),
    time_column("newest_at"),
    Column("vouched", Boolean, nullable=False),
    time_column("claimed_at", nullable=True),
    PrimaryKeyConstraint("project_id", "event"),
)

# How many events of a name came live, on each of the last two days.
name_counts = new_table(
    "name_counts",
    project_column(),
    Column("event", Text, nullable=False),
    Column("day", Date, nullable=False),
    Column("events", BigInteger, nullable=False),
    PrimaryKeyConstraint("project_id", "event", "day"),
)

# What became of what a project's senders sent to `/v1/events`: only the API knows what it refused.
admissions = new_table(
    "admissions",
    project_column(),
    time_column("minute"),
    # Whole requests, and of these the ones beyond a rate limit.
    Column("requests", BigInteger, nullable=False),
    Column("limited", BigInteger, nullable=False),
    # Events, the late ones among the accepted.
    Column("accepted", BigInteger, nullable=False),
    Column("late", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    # Refused too, and not among those: no session is named.
    Column("without_unit", BigInteger, nullable=False),
    # Code and member of a rejection; no value that was sent.
    Column("reason", Text),
    # Values for nothing, sent to any address, and the member that the last of them stood in.
    Column("nothing", BigInteger, nullable=False, server_default=text("0")),
    Column("lacking", Text),
    # Spans whose request's first span came in another export, and those with a foreign pattern.
    Column("split_spans", BigInteger, nullable=False, server_default=text("0")),
    Column("untranslated_spans", BigInteger, nullable=False, server_default=text("0")),
    # Valid, but of units outside the project's sample: not stored.
    Column("sampled_out", BigInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("project_id", "minute"),
    Index(None, "minute"),
)

# The outside of the store that belongs to it; a single row. Of the secret a check value, which
# tells nothing of it; the identity and the time of the last claim stand in the lake too. By its own
# secret, which is nowhere else, events are picked: whoever knows it can choose ids that never are.
installation = new_table(
    "installation",
    Column("place", Integer, primary_key=True, autoincrement=False, server_default=text("1")),
    Column("secret_check", LargeBinary),
    Column("identity", Text, nullable=False, server_default=text("gen_random_uuid()")),
    Column(
        "pick_secret",
        Text,
        nullable=False,
        server_default=text("concat(gen_random_uuid(), gen_random_uuid())"),
    ),
    # In microseconds since the epoch.
    Column("lake_claimed_at", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("place = 1", name="one"),
)

# --- What projects learn of their verdicts: an outbox ---------------------------------------------

# Never emptied: what was announced once is not announced again, whatever a rebuild publishes.
announcements = new_table(
    "announcements",
    # What receivers get as `webhook-id`.
    Column("announcement_id", Text, primary_key=True),
    project_column(),
    Column("experiment_id", Text, ForeignKey("experiments.experiment_id")),
    Column("kind", Text, nullable=False),
    # A breach's guardrail, a place's id, the new base; else empty.
    Column("subject", Text, nullable=False),
    time_column("announced_at"),
    # As it was served then, to the byte.
    Column("contract", JSON, nullable=False),
    Column("sentence", Text),
    Column("environment", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("commit_sha", Text),
    UniqueConstraint("experiment_id", "kind", "subject"),
    CheckConstraint(
        "kind IN ('decided', 'closed', 'breached', 'suspected', 'set_up_fault', 'base_moved',"
        " 'placed', 'promote', 'withdraw', 'test')",
        name="kind",
    ),
    # Only a trial of a webhook, and a place without a deploy, are about no experiment.
    CheckConstraint(
        "experiment_id IS NOT NULL OR kind IN ('placed', 'promote', 'withdraw', 'test')",
        name="experiment",
    ),
)

# An announcement for a webhook: waiting, until it is delivered or given up.
deliveries = new_table(
    "deliveries",
    Column("announcement_id", Text, ForeignKey("announcements.announcement_id"), nullable=False),
    # A digest that finds the webhook in the project's settings; its address stands there alone.
    Column("target", Text, nullable=False),
    # Noted before each attempt, so that an attempt that broke off is made again.
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    time_column("next_attempt_at"),
    time_column("delivered_at", nullable=True),
    time_column("given_up_at", nullable=True),
    # In words of ours: nothing of the answer, nothing of the address.
    Column("problem", Text),
    PrimaryKeyConstraint("announcement_id", "target"),
    CheckConstraint("delivered_at IS NULL OR given_up_at IS NULL", name="end"),
    Index(
        None,
        "next_attempt_at",
        postgresql_where=text("delivered_at IS NULL AND given_up_at IS NULL"),
    ),
)

# Who changed what, when: settings, keys, closes, freezes, erasures. Added to, never changed.
audit_trail = new_table(
    "audit_trail",
    Column("entry_id", BigInteger, Identity(), primary_key=True),
    # Null: the whole service, as a freeze.
    Column("project_id", Integer, ForeignKey("projects.project_id")),
    time_column("happened_at"),
    Column("actor_kind", Text, nullable=False),
    # The owner's name, the key's label, the login of the command.
    Column("actor_name", Text),
    # The beginning of a key, or of the digest of a sign-in.
    Column("actor_identity", Text),
    Column("action", Text, nullable=False),
    Column("subject", Text),
    # Members with their values before and after; of secrets nothing.
    Column("changes", JSONB, nullable=False),
    CheckConstraint("actor_kind IN ('owner', 'key', 'command', 'program')", name="actor_kind"),
    Index(None, "project_id", "entry_id"),
)
_KEPT = DDL(
    """
CREATE FUNCTION refuse_changing_the_trail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit trail is never changed'
        USING ERRCODE = 'integrity_constraint_violation';
END
$$;
CREATE TRIGGER refuse_changing BEFORE UPDATE OR DELETE ON audit_trail
    FOR EACH ROW EXECUTE FUNCTION refuse_changing_the_trail();
CREATE TRIGGER refuse_truncating BEFORE TRUNCATE ON audit_trail
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_changing_the_trail();
"""
)
event.listen(audit_trail, "after_create", _KEPT)

# --- The sealed log: hours of runtime events in files ---------------------------------------------

# Parts of hours of receipt that are closed: no event is added to them any more. Those with a
# `sealed_at` are sealed: whole in a file of the lake, or without any event and without a file.
sealed_hours = new_table(
    "sealed_hours",
    time_column("hour"),
    # 0: received live, or brought by history before the hour was closed; 1 and up: later history.
    Column("part", SmallInteger, nullable=False),
    time_column("closed_at"),
    time_column("sealed_at", nullable=True),
    # Below SERVICE_LAKE, so that a lake that is moved needs no change here.
    Column("file", Text, unique=True),
    Column("rows", BigInteger),
    Column("bytes", BigInteger),
    Column("sha256", LargeBinary),
    # The newest erasure that was carried out before its rows were read: later ones may be in it.
    Column("last_erasure", BigInteger),
    # When the file was seen to hold what PostgreSQL held.
    time_column("compared_at", nullable=True),
    # From when on the file alone holds its events, but for those that look-ups of rows may need.
    time_column("moved_at", nullable=True),
    # When all of its bytes were read last, and their fault; null where they were as listed.
    time_column("verified_at", nullable=True),
    Column("fault", Text),
    PrimaryKeyConstraint("hour", "part"),
    CheckConstraint("part >= 0", name="part"),
    CheckConstraint(
        "(sealed_at IS NULL) = (rows IS NULL) AND (sealed_at IS NULL) = (last_erasure IS NULL)",
        name="sealed",
    ),
    CheckConstraint("moved_at IS NULL OR sealed_at IS NOT NULL", name="moved"),
    CheckConstraint(
        "(file IS NOT NULL) = (coalesce(rows, 0) > 0) AND (file IS NULL) = (bytes IS NULL)"
        " AND (file IS NULL) = (sha256 IS NULL)",
        name="file",
    ),
)

# Parts that history brought to closed hours, until they are closed themselves. Two writers at once
# may leave the same row twice.
replayed_hours = new_table(
    "replayed_hours",
    time_column("hour"),
    Column("part", SmallInteger, nullable=False),
    Index(None, "hour", "part"),
)

# --- What the log can tell no longer: days that were dropped --------------------------------------

# The past days that history was written into, and on which days, in UTC; of a day that was only
# ever received live there is none. Two writers at once may leave the same row twice.
replayed_days = new_table(
    "replayed_days",
    Column("day", Date, nullable=False),
    Column("written_on", Date, nullable=False),
    Index(None, "day", "written_on"),
)

# --- What the log can tell no longer: people who were forgotten ---------------------------------


def _tombstones_of(rows: Table) -> Table:
    """Returns the table of a derived table's rows that no event stands behind any more.

    The pipeline adds them to its input, whole rows as they are: the columns are the same, in
    the same order. No unit's name leads to whoever was forgotten.
    """
    return Table(
        f"tombstone_{rows.name}",
        metadata,
        *(
            _experiment()
            if column.name == "experiment_id"
            else Column(column.name, column.type, nullable=column.nullable, info=column.info)
            for column in rows.columns
        ),
        PrimaryKeyConstraint(*(column.name for column in rows.primary_key)),
    )


tombstones = tuple(_tombstones_of(rows) for rows in (exposures, sightings, conversions, amounts))

# That a session named somebody who is forgotten since, and goes on: whom it names later is another.
forgotten_names = new_table(
    "forgotten_names",
    project_column(),
    Column("environment", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    time_column("received_at"),
    Column("trusted", Boolean, nullable=False),
    Column("signed", Boolean, nullable=False),
    Index(None, "project_id"),
)

# --- What people read --------------------------------------------------------------------------


def in_words(column: Column[object], sql: str) -> str:
    """Returns SQL for a value of a derived column as a person reads it: its time, or its word."""
    return column.info.get("words", str)(sql)


def _view_in_words(table: Table) -> None:
    """Gives a derived table a view with times and words in the place of numbers."""
    columns = ", ".join(f"{in_words(each, each.name)} AS {each.name}" for each in table.columns)
    view = DDL(f"CREATE VIEW {table.name}_in_words AS SELECT {columns} FROM {table.name}")
    event.listen(table, "after_create", view)


_COUNTS = (block_units, block_names, cells)
for _rows in (exposures, sightings, conversions, amounts, *_COUNTS, *tombstones):
    _view_in_words(_rows)

_GUARD = DDL(
    """
CREATE FUNCTION refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'verdicts are never emptied'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF OLD.decided THEN
        RAISE EXCEPTION 'experiment %% is decided: its verdict is never rewritten',
            OLD.experiment_id USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER refuse_rewriting BEFORE UPDATE OR DELETE ON verdicts
    FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER refuse_truncating BEFORE TRUNCATE ON verdicts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
"""
)
event.listen(verdicts, "after_create", _GUARD)
