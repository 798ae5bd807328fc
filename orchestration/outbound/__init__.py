"""Outbound: the bodies of webhooks, and their delivery.

Imports `storage` and `domain`; Dagster's sensors import it.
"""
