"""What tells that the arms differ by more than the change: one gate a file, and guardrails.

Imports `counts` and `sequential`; looks and decisions may import it.
"""
