"""Gates, a file each: tests of whether arms differ by more than the change.

Imports `counts`, `sequential`, `looks` and `guardrails`; decisions may import it.
"""
