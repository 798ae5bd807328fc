"""The server: its process, its workers, and a client's connection.

Imports `runtime` and `wire`; the command line starts it.
"""
