"""Days: the rows of single days, computed from the log in DuckDB and compared with the served ones.

The top of the pipeline: the day check imports it.
"""
