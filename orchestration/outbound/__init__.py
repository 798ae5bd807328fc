"""Outbound: what is sent to webhooks, how, and without secrets.

Imports `storage` and `domain`; Dagster's sensors import it.
"""
