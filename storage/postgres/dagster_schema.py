"""The schema of our database in which Dagster keeps its own records, beside ours."""

import psycopg
from sqlalchemy.engine import make_url

from storage.postgres.engine import connection_string

DAGSTER_SCHEMA = "dagster"


def create_dagster_schema(url: str) -> None:
    """Make the schema where it does not stand yet.

    Raises:
        psycopg.Error: the database cannot be reached, or refuses.
    """
    with psycopg.connect(connection_string(url), autocommit=True, connect_timeout=10) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {DAGSTER_SCHEMA}")


def dagster_url(url: str) -> str:
    """The address under which Dagster finds its schema, for the driver that it brings (psycopg2).

    The bare `postgresql://` would choose psycopg 3, whose parameters Dagster does not speak.
    """
    options = f"-c search_path={DAGSTER_SCHEMA}"
    ours = make_url(url).set(drivername="postgresql+psycopg2")
    return ours.update_query_dict({"options": options}).render_as_string(hide_password=False)
