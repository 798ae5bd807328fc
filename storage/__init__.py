"""Everything the service remembers, in PostgreSQL."""
