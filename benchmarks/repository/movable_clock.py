"""A store's own clock, which a simulation moves: days of a repository pass in minutes.

Nothing of the service knows of it: in this database alone a schema that is searched before
PostgreSQL's own holds functions of the same names.
"""

from datetime import datetime

import psycopg

from storage.postgres.engine import SCHEMA, connection_string

# A connection names its own search path, so that only a trigger on its login can add to it.
_SET_UP = f"""
CREATE SCHEMA movable_clock;
CREATE TABLE movable_clock.clock (moment timestamptz NOT NULL);
CREATE FUNCTION movable_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT moment FROM movable_clock.clock';
CREATE FUNCTION movable_clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT moment FROM movable_clock.clock';
CREATE FUNCTION movable_clock.enter() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('search_path', 'movable_clock, {SCHEMA}, pg_catalog', false);
END
$$;
CREATE EVENT TRIGGER movable_clock ON login EXECUTE FUNCTION movable_clock.enter();
"""
_START = "INSERT INTO movable_clock.clock VALUES (%s)"
_MOVE = "UPDATE movable_clock.clock SET moment = %s"


class MovableClock:
    """The clock of a database, for every connection that is opened from now on.

    Args:
        url: The database's address, of a role that may create event triggers.
        moment: The first time it shows, with an offset.
    """

    def __init__(self, url: str, moment: datetime) -> None:
        self._connection = psycopg.connect(connection_string(url), autocommit=True)
        self._connection.execute(_SET_UP.encode())
        self._connection.execute(_START, (moment,))

    def move(self, moment: datetime) -> None:
        """Sets the clock."""
        self._connection.execute(_MOVE, (moment,))

    def close(self) -> None:
        """Leaves the clock as it is."""
        self._connection.close()
