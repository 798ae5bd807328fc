"""Verdicts: evidence, publication, polls, announcements, and what comes next.

Imports the pipeline and below; upkeep and views may import it.
"""
