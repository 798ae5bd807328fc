"""Verdicts: evidence, publication, polls, announcements, and the next looks.

Imports the pipeline and below; upkeep and views may import it.
"""
