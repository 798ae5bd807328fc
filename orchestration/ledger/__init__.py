"""The ledger in Dagster, as an asset.

An annex: the definitions alone import it.
"""
