"""Commands for who runs the service: projects, audits, rebuilds, deliveries.

`cli.main` loads them by name.
"""
