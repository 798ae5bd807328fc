"""Pictures: experiments drawn as SVG for Dagster's pages.

Imports `storage` for units of measure; Dagster's room imports it.
"""
