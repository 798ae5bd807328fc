"""The log: runtime events and revenue as they are appended to PostgreSQL, in parts of hours.

Hours that have ended are written to files by `storage/lake`.
"""
