"""The schema: tables, migrations, partitions, and the store's clock.

Imports `postgres` alone; every room above may import it.
"""
