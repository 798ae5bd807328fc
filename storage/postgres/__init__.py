"""PostgreSQL: the embedded server, connections, and what can be said of both.

The ground of `storage`: every other room of it may import it.
"""
