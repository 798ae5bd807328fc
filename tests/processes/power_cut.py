"""A power cut: PostgreSQL ends as it stands, and recovers what it promised at its next start."""

import signal

from own_postgres.server import EmbeddedPostgres


def cut_power(postgres: EmbeddedPostgres, *, turn: int) -> None:
    """Ends the server, and waits until it is gone: until then `start` rightly leaves it alone.

    Args:
        turn: By turns the server is killed, or asked to end in its `immediate` mode, which writes
            no last checkpoint either.
    """
    assert postgres.process is not None
    postgres.process.send_signal(signal.SIGKILL if turn % 2 else signal.SIGQUIT)
    postgres.process.wait()
