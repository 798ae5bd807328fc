"""Runs the revision on the connection that `storage.schema.migrate` opened."""

from alembic import context

from storage.schema.annex_tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
