"""A PostgreSQL of one's own: a cluster in a folder, and child processes that end with us."""
