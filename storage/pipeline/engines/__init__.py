"""The engines of the pipeline's text: PostgreSQL, DuckDB and Spark, one a file.

They import the text and nothing else of the pipeline, which opens and feeds them.
"""
