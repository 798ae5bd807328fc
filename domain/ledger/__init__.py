"""The ledger: the sums over a project's verdicts, and how many keeps are likely to be false.

An annex: no verdict depends on it. Storage fills its documents, and every face shows them.
"""
