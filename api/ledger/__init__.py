"""The ledger over HTTP: the sums over a project's verdicts, and its portfolio.

An annex: the application alone imports it.
"""
