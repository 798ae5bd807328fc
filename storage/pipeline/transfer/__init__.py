"""Transfer: rows from the engines of whole days into derived tables, and stored rows into DuckDB.

Imports `engines` and the text; the rest of the pipeline imports it.
"""
