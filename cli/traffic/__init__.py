"""Simulated traffic: canaries, loads and the demo.

`cli.main` loads its commands by name; `up` plays the demo.
"""
