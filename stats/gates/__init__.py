"""Gates, a file each: tests of whether arms differ by more than the change; and guardrails.

Imports `counts` and `sequential`; looks and decisions may import it.
"""
