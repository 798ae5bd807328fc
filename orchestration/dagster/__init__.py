"""Dagster: assets, checks, jobs, schedules, sensors and the resource that they share.

`orchestration.definitions` puts them together; nothing else imports this room.
"""
