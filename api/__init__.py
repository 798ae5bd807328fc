"""The HTTP face: ingests, and serves what storage holds."""
