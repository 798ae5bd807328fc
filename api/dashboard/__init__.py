"""The dashboard: pages for people that show stored deploys, experiments and settings."""
