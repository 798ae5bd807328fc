"""The pages of a project's settings: simple settings, lists of entries, and keys.

Imports `page`; the list of pages imports it.
"""
