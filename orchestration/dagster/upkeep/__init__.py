"""Upkeep of Dagster: its records of us, its daemon's clock, and sensors that alert and deliver.

Imports the assets' room; `orchestration.definitions` imports it.
"""
