"""Releases: the gate that a rollout asks before it goes on with a commit, and freezes.

Imports `schema` and `domain`; the API and orchestration import it.
"""
