"""The ledger's reading: the entries of a project, and its portfolio.

An annex: nothing that a verdict depends on imports it.
"""
