"""Wording: how a verdict is said, once for every face: headline, advice, warnings, looks to draw.

Imports `domain` alone; pages, pictures, commands and tools format what it returns.
"""
