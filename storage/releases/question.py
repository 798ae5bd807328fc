"""The question of a release gate: which deployed commit it is asked about."""

from sqlalchemy import Connection, select

from domain.figures import first_names
from domain.lineage.commit_id import ambiguous
from storage.experiments.commit_ids import commits_meant
from storage.experiments.serving import later_build, nothing_to_judge
from storage.releases.canary import declared_canaries
from storage.releases.release_gate import Judgment, hold
from storage.schema.tables import deploys

_SHORT = 12
# There may be thousands of canaries; a sentence names a few.
_NAMED = 5


def commit_in_question(
    connection: Connection, project_id: int, environment: str, *, named: str | None
) -> str | Judgment:
    """Returns the deployed commit that a gate is asked about, or why it must hold.

    Args:
        named: The commit or its beginning; None for the only declared canary, beside which
            hold-backs may be served.
    """
    if named is not None:
        return _named_commit(connection, project_id, environment, named)
    declared = declared_canaries(connection, project_id, environment)
    later = {
        canary.commit: later_build(connection, project_id, environment, canary.commit)
        for canary in declared
    }
    canaries = [canary for canary in declared if later[canary.commit] is None]
    if len(canaries) == 1:
        return canaries[0].commit
    if not canaries:
        held_back = "".join(
            f" {nothing_to_judge(commit, build)}." for commit, build in later.items() if build
        )
        return hold(
            f"no canary is declared in this environment.{held_back} Post the canary's deploy with"
            " its allocation, a share between 0 and 1, or name it by treatment_commit."
        )
    listed = first_names(
        [f"{canary.commit[:_SHORT]} at {100 * canary.share:.4g} %" for canary in canaries], _NAMED
    )
    return hold(
        f"{len(canaries)} canaries are declared here: {listed}. Name a canary by"
        " treatment_commit, or post allocation 0 for what is withdrawn and 1 for what is promoted."
    )


def held_back(
    connection: Connection, project_id: int, environment: str, commit: str
) -> Judgment | None:
    """Returns the judgment on a hold-back that was named; None where the commit is none."""
    build = later_build(connection, project_id, environment, commit)
    return None if build is None else hold(f"{nothing_to_judge(commit, build)}.")


def _named_commit(
    connection: Connection, project_id: int, environment: str, named: str
) -> str | Judgment:
    meant = commits_meant(connection, project_id, named)
    if len(meant) > 1:
        return hold(f"{ambiguous(named, (known.id for known in meant))}.")
    deployed = select(deploys.c.deploy_id).where(
        deploys.c.project_id == project_id,
        deploys.c.environment == environment,
        deploys.c.withdrawn_at.is_(None),
        deploys.c.commit_sha.in_([known.commit for known in meant]),
    )
    if connection.execute(deployed.limit(1)).one_or_none() is None:
        return hold(
            f"no deploy of this environment is of commit {named[:_SHORT]}. Check the commit, or"
            " post its deploy."
        )
    return meant[0].commit
