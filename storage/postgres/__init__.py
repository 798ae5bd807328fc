"""PostgreSQL: the embedded server, connections, and the facts about both.

The ground of `storage`: every other room of it may import it.
"""
