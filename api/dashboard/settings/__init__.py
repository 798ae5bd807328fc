"""The pages of a project's settings: what it tests, its entries, its keys.

Imports `page`; the list of pages imports it.
"""
