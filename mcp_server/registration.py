"""A registration as the tools say it: waiting, without its control, or measured with others."""

from domain.registration import RegistrationAnswer
from mcp_server.contract import BaseMove

# The evidence names all of them.
_MOST_CHANGES = 3


def rebase_of(registration: RegistrationAnswer) -> BaseMove | None:
    """Returns the rebase of an experiment whose base moved; None of any other."""
    moved = registration.base_moved
    if moved is None:
        return None
    changes = [change[:64] for change in moved.changes[:_MOST_CHANGES]]
    return BaseMove(on=moved.rebase_on[:64], changes=changes, continues=moved.continues)
