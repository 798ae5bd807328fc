"""Policy columns: SQL for each member of a frozen policy that a statement reads, written once.

Each is an expression over `experiments AS x`. A statement over all experiments must not end because
a policy is broken: of that policy it reads NULL, unless the column says `strict`. The stages of the
pipeline read policies strictly, each within a batch.
"""

import msgspec

from domain.cause import LEFT_OUT
from domain.metric import HISTORY, FrozenMetric
from domain.policy import Policy

_Holder = type[msgspec.Struct]


def _json(member: str, holder: _Holder = Policy, *, at: str = "x.policy") -> str:
    """Returns SQL for a member of a policy, or of another holder."""
    getattr(holder, member)
    return f"{at} -> '{member}'"


def _text(member: str, holder: _Holder = Policy, *, at: str = "x.policy") -> str:
    getattr(holder, member)
    return f"{at} ->> '{member}'"


def _number(member: str, holder: _Holder = Policy, *, at: str = "x.policy") -> str:
    """Returns SQL for a member as a double; NULL where it is no number of a sane size."""
    number = _json(member, holder, at=at)
    # Cases within each other, since only those are evaluated in order.
    return (
        f"CASE WHEN jsonb_typeof({number}) = 'number' THEN"
        f" CASE WHEN ({number})::numeric BETWEEN -1e9 AND 1e9 THEN ({number})::float END END"
    )


def _span(member: str, holder: _Holder = Policy, *, at: str = "x.policy") -> str:
    """Returns SQL for a member in seconds as an interval; NULL where it cannot be read."""
    return f"make_interval(secs => {_number(member, holder, at=at)})"


def _holds(member: str) -> str:
    return f"coalesce({_json(member)} = 'true'::jsonb, false)"


# The commit that it compares, or is to; NULL of a flag, which has the same build in both arms. The
# index on it knows how few experiments a commit has, however many flags are on its build.
OWN_COMMIT = """
CASE WHEN x.control_commit IS DISTINCT FROM x.treatment_commit THEN x.treatment_commit END
"""
TARGET, _GUARDRAILS, _COMPANIONS = map(_json, ("target", "guardrails", "companions"))


# From when on the log is read. Units seen from then on until the start are in neither arm: in
# flight at it, control would have them and treatment none; since a canary that was registered late
# began, the change may have moved them.
SEEN_FROM = "least(x.declared_at, x.starts_at - interval '30 minutes')"
GRACE_SECONDS = _number("grace_seconds")
GRACE = _span("grace_seconds")
HORIZON = _span("horizon_seconds")
# Whether a history of users is read, which nothing of the past may change from then on.
_ADJUSTED = f"coalesce(({_COMPANIONS}) @? '$[*] ? (@.role == \"{HISTORY}\")', false)"
HISTORY_FROM = f"({SEEN_FROM} - CASE WHEN {_ADJUSTED} THEN interval '28 days' ELSE '0' END)"
# How long the target's outcomes stay open after a block's exposures. A grace that cannot be read
# hides no window: such an experiment is due, and is set aside.
_TARGET_GRACE = _span("grace_seconds", FrozenMetric, at=TARGET)
TARGET_OPEN_FOR = f"({_span('window_seconds')} + coalesce({_TARGET_GRACE} - {GRACE}, interval '0'))"
# Whether a companion of the target counts outcomes that it leaves out.
_REASONS = " || ".join(f'@.role == "{reason}"' for reason in LEFT_OUT)
LEAVES_OUT = f"coalesce(({_COMPANIONS}) @? '$[*] ? ({_REASONS})', false)"
JUDGED_METRICS = f"jsonb_build_array({TARGET}) || ({_GUARDRAILS})"
ALPHA = _number("alpha")
ATTEMPT = _number("attempt")
SAMPLE_RATE = _number("sample_rate")
CONTRAST_SECONDS = f"CAST({_text('contrast_seconds')} AS bigint)"
BLOCK_MIN_UNITS = f"({_text('block_min_units')})::bigint"  # strict
UNDECLARED_MIN_UNITS = f"({_text('undeclared_min_units')})::bigint"  # strict
GRAPH_ID = _text("graph_id")
ROUTES = _json("routes")
BY_USER = f"coalesce({_text('unit')} <> 'session', false)"
_TRUSTED = _json("trusted_identity")
TRUSTED_IDENTITY = f"CASE WHEN jsonb_typeof({_TRUSTED}) = 'boolean' THEN ({_TRUSTED})::boolean END"
IS_DRAWN = _holds("drawn")
# As requested, so that they are known before a policy is frozen.
HAS_FLAG = "x.request -> 'treatment_flag' IS NOT NULL"
FLAG_NAME = "x.request -> 'treatment_flag' ->> 'name'"
CHECKS_DRAWS = """(
    x.request #>> '{treatment_flag,control}' IS NOT NULL
    AND CAST(x.binding #>> '{settings,verified_draws}' AS boolean)
)"""
# The build that users have is its treatment, and stays the base of whatever comes.
IS_PORTFOLIO = '(x.request @> \'{"metadata": {"portfolio": true}}\')'
IS_HISTORY = _holds("retrospective")
# Whether treatment has no unit after the history that the binding knew: nobody can act on such an
# experiment. Times are compared as text, since a broken binding must not end the statement.
IS_PAST = f"""({IS_HISTORY} AND NOT EXISTS (
    SELECT FROM block_units AS u WHERE u.experiment_id = x.experiment_id AND u.treatment > 0
      AND to_char(to_timestamp(u.block / 1e6), 'YYYY-MM-DD"T"HH24:MI') COLLATE "C"
        > x.binding ->> 'history_until'
))"""
KEEP_WHEN = _text("keep_when")


def _metrics(definitions: str) -> str:
    """Returns SQL for metrics of a policy: their name, and how long their outcomes stay open."""
    name, window, grace = (
        _text(member, FrozenMetric, at="definition")
        for member in ("name", "window_seconds", "grace_seconds")
    )
    return f"""
    SELECT {name} AS name,
        make_interval(secs => ({window})::float + coalesce(
            ({grace})::float - ({_text("grace_seconds")})::float, 0
        )) AS open_for
    FROM jsonb_array_elements({definitions}) AS definition
    """


# Relations of name and open_for (strict).
TARGET_AND_GUARDRAILS = _metrics(JUDGED_METRICS)
COMPANIONS = _metrics(_COMPANIONS)
