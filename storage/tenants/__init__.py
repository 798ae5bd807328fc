"""Tenants: projects, their keys, settings and secrets, and who signs in.

Imports `schema` and `postgres`; experiments, the log and all above may import it.
"""
