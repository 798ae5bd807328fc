"""The pipeline's steps from the log to a published verdict, without Dagster.

Imports `stats`, `storage` and `domain`; Dagster's room and the command line import it.
"""
