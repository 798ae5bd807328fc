"""Upkeep: forgetting, retention, rebuilds, gauges and invariants.

Imports every room of `storage` but the views.
"""
