"""The schema: tables, the revision that makes them, partitions, and the store's clock.

Imports `postgres` alone; every room above may import it.
"""
