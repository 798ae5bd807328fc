"""The Dagster face: assets, checks, schedules."""
