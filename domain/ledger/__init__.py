"""The ledger: the sums over a project's verdicts, and how many keeps are likely to be false.

No verdict depends on it. Storage reads its entries; the API and the assets show it.
"""
