"""Wording: a verdict's headline, advice, warnings and looks to draw, the same in every face.

Imports `domain` alone; pages, pictures, commands and tools format its results.
"""
