"""Companions: gates that read other outcomes of the target's units."""
