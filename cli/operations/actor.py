"""The actor of a command: the login under which it runs, for the audit trail."""

import getpass

from storage.tenants.audit_trail import Actor, ActorKind


def command_actor() -> Actor:
    """Returns the name of the user who runs this command."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user whom its system does not know.
        name = None
    return Actor(kind=ActorKind.COMMAND, name=name, identity=None)
