"""Upkeep of Dagster: its records of us, its daemon's clock, and sensors that deliver and repair.

Imports the assets' room; `orchestration.definitions` imports it.
"""
