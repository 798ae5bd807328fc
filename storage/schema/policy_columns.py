"""Policy columns: SQL that reads members of a frozen policy, and never fails on any content.

A statement over all experiments must not end because one policy is of a later version or broken:
of that one it reads NULL. The stages of the pipeline read policies strictly, each within a batch.
"""


def number_of(member: str, *, policy: str = "x.policy") -> str:
    """Returns SQL for a member as a double; NULL where it is no number of a sane size.

    Args:
        member: The name of the member.
        policy: SQL for the JSON that holds it.
    """
    # Cases within one another, since only those are evaluated in order.
    return (
        f"CASE WHEN jsonb_typeof({policy} -> '{member}') = 'number' THEN"
        f" CASE WHEN ({policy} -> '{member}')::numeric BETWEEN -1e9 AND 1e9"
        f" THEN ({policy} ->> '{member}')::float END END"
    )


def span_of(member: str, *, policy: str = "x.policy") -> str:
    """Returns SQL for a member in seconds as an interval; NULL where it cannot be read."""
    return f"make_interval(secs => {number_of(member, policy=policy)})"


def target_open_for() -> str:
    """Returns SQL for how long the target's outcomes stay open after a block's exposures.

    NULL where the window of the policy `x.policy` cannot be read.
    """
    grace = span_of("grace_seconds")
    own = span_of("grace_seconds", policy="x.policy -> 'target'")
    # A grace that cannot be read hides no window: such an experiment is due, and is set aside.
    return f"({span_of('window_seconds')} + coalesce({own} - {grace}, interval '0'))"


def metric_open_for() -> str:
    """Returns SQL for the same of the metric whose definition in `x.policy` is `m`."""
    return (
        "make_interval(secs => (m ->> 'window_seconds')::float + coalesce("
        "(m ->> 'grace_seconds')::float - (x.policy ->> 'grace_seconds')::float, 0))"
    )


def truth_of(member: str, *, policy: str = "x.policy") -> str:
    """Returns SQL for a member that is true or false; NULL where it cannot be read."""
    return (
        f"CASE WHEN jsonb_typeof({policy} -> '{member}') = 'boolean'"
        f" THEN ({policy} ->> '{member}')::boolean END"
    )
