"""Policy columns: SQL for each member of a frozen policy that a statement reads, written once.

Each is an expression over `experiments AS x`. A statement over all experiments must not end because
a policy is broken: of that policy it reads NULL, unless the column says `strict`. The stages of the
pipeline read policies strictly, each within a batch.
"""

from domain.cause import LEFT_OUT
from domain.metric import HISTORY
from domain.registration import PORTFOLIO, RETROSPECTIVE


def _number(member: str, *, policy: str = "x.policy") -> str:
    """Returns SQL for a member as a double; NULL where it is no number of a sane size."""
    # Cases within each other, since only those are evaluated in order.
    return (
        f"CASE WHEN jsonb_typeof({policy} -> '{member}') = 'number' THEN"
        f" CASE WHEN ({policy} -> '{member}')::numeric BETWEEN -1e9 AND 1e9"
        f" THEN ({policy} ->> '{member}')::float END END"
    )


def _span(member: str, *, policy: str = "x.policy") -> str:
    """Returns SQL for a member in seconds as an interval; NULL where it cannot be read."""
    return f"make_interval(secs => {_number(member, policy=policy)})"


# From when on the log is read. Units seen from then on until the start are in neither arm: in
# flight at it, control would have them and treatment none; since a canary that was registered late
# began, the change may have moved them.
SEEN_FROM = "least(x.declared_at, x.starts_at - interval '30 minutes')"
GRACE_SECONDS = _number("grace_seconds")
GRACE = _span("grace_seconds")
HORIZON = _span("horizon_seconds")
# Whether a history of users is read, which nothing of the past may change from then on.
_ADJUSTED = f"coalesce((x.policy -> 'companions') @? '$[*] ? (@.role == \"{HISTORY}\")', false)"
HISTORY_FROM = f"({SEEN_FROM} - CASE WHEN {_ADJUSTED} THEN interval '28 days' ELSE '0' END)"
# How long the target's outcomes stay open after a block's exposures. A grace that cannot be read
# hides no window: such an experiment is due, and is set aside.
_TARGET_GRACE = _span("grace_seconds", policy="x.policy -> 'target'")
TARGET_OPEN_FOR = f"({_span('window_seconds')} + coalesce({_TARGET_GRACE} - {GRACE}, interval '0'))"
TARGET = "x.policy -> 'target'"
# Whether a companion of the target counts outcomes that it leaves out.
_REASONS = " || ".join(f'@.role == "{reason}"' for reason in LEFT_OUT)
LEAVES_OUT = f"coalesce((x.policy -> 'companions') @? '$[*] ? ({_REASONS})', false)"
TARGET_SOURCES = "coalesce(x.policy -> 'target' -> 'sources', jsonb_build_array(x.target_metric))"
JUDGED_METRICS = "jsonb_build_array(x.policy -> 'target') || (x.policy -> 'guardrails')"
# The target and the guardrails that a keep waits for, of whose events none ever came.
NEVER_RECEIVED = """ARRAY(
    SELECT m.metric ->> 'name'
    FROM (
        SELECT x.policy -> 'target', 0
        UNION ALL
        SELECT g.metric, g.place
        FROM jsonb_path_query(x.policy, '$.guardrails[*]') WITH ORDINALITY AS g (metric, place)
        WHERE g.metric -> 'margin' <> 'null'
    ) AS m (metric, place)
    WHERE m.metric IS NOT NULL AND NOT EXISTS (
        SELECT FROM jsonb_path_query(m.metric, '$.sources[*]') AS e (event)
        JOIN seen_names AS s ON s.project_id = x.project_id AND s.event = e.event #>> '{}'
    )
    ORDER BY m.place
)"""
ALPHA = _number("alpha")
ATTEMPT = _number("attempt")
SAMPLE_RATE = _number("sample_rate")
CONTRAST_SECONDS = "CAST(x.policy ->> 'contrast_seconds' AS bigint)"
BLOCK_MIN_UNITS = "(x.policy ->> 'block_min_units')::bigint"  # strict
UNDECLARED_MIN_UNITS = "(x.policy ->> 'undeclared_min_units')::bigint"  # strict
GRAPH_ID = "x.policy ->> 'graph_id'"
ROUTES = "x.policy -> 'routes'"
BY_USER = "coalesce(x.policy ->> 'unit' = 'user', false)"
TRUSTED_IDENTITY = """
CASE WHEN jsonb_typeof(x.policy -> 'trusted_identity') = 'boolean'
    THEN (x.policy ->> 'trusted_identity')::boolean END
"""
IS_DRAWN = "coalesce(x.policy -> 'drawn' = 'true'::jsonb, false)"
HAS_FLAG = "x.policy ->> 'flag' IS NOT NULL"
FLAG_NAME = "x.policy -> 'flag' ->> 'name'"
# The build that users have is its treatment, and stays the base of whatever comes.
IS_PORTFOLIO = f"coalesce(x.policy -> '{PORTFOLIO}' = 'true'::jsonb, false)"
IS_HISTORY = f"coalesce(x.policy -> '{RETROSPECTIVE}' = 'true'::jsonb, false)"


def _metrics(definitions: str) -> str:
    """Returns SQL for metrics of a policy: their name, and how long their outcomes stay open."""
    return f"""
    SELECT definition ->> 'name' AS name,
        make_interval(secs => (definition ->> 'window_seconds')::float + coalesce(
            (definition ->> 'grace_seconds')::float - (x.policy ->> 'grace_seconds')::float, 0
        )) AS open_for
    FROM jsonb_array_elements({definitions}) AS definition
    """


# Relations of name and open_for (strict).
TARGET_AND_GUARDRAILS = _metrics(JUDGED_METRICS)
COMPANIONS = _metrics("x.policy -> 'companions'")
