"""Gates, a file each: tests of whether arms differ by more than the change; and guardrails.

Imports `counts`, `sequential` and `looks`; decisions may import it.
"""
