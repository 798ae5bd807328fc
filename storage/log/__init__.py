"""The sealed log: hours of receipt in Parquet files, their list, and the reader of both tiers.

Everything about runtime events that are no longer in PostgreSQL alone. Imported by what appends to
the log or reads whole days of it: events, forgetting, retention, pipeline, orchestration and cli.
"""
