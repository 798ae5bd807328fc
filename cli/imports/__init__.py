"""The import of history: the rows of a user's SELECT become checked events and experiments.

`command` is the entry point. `query` runs the SELECT in a confined DuckDB, `checks` holds its rows
to the rules of the API, and `spool` keeps their events on disk. `experiments_file` names the
experiments; `rehearsal` judges them; then `storing` puts all events into the store in a single
transaction, `experiments` posts deploys and registers, and `report` describes the result.
Only `cli.main` and `cli.outcomes` may import this room.
"""
