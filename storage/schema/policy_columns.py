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


def truth_of(member: str, *, policy: str = "x.policy") -> str:
    """Returns SQL for a member that is true or false; NULL where it cannot be read."""
    return (
        f"CASE WHEN jsonb_typeof({policy} -> '{member}') = 'boolean'"
        f" THEN ({policy} ->> '{member}')::boolean END"
    )
