"""The dashboard: pages for people, of what storage holds."""
