"""Commands for a change: deploy, register, wait, explain, close.

`cli.main` loads them by name.
"""
