"""Outbound: the bodies of webhooks, their delivery, and the removal of secrets.

Imports `storage` and `domain`; Dagster's sensors import it.
"""
