"""PostgreSQL: the embedded server, connections, and what can be said of both.

The ground of `storage`: every room of it may import this one.
"""
