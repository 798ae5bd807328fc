"""Places: a flag or a canary's share of the traffic for each change, and the queue for them.

Imports `verdicts` and below; the pipeline's last step, the API and the ledger import it.
"""
