"""Simulated traffic: canaries, loads and the demo, as clients of a running service."""
