"""The runtime: the state that the endpoints of a process share while it runs.

Imports `wire`; routes, the dashboard and the server may import it.
"""
