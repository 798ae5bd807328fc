"""The import of history: a file's rows become checked events, deploys and experiments.

`command` is the entry point. DuckDB reads the file: `tables` loads its rows, `cells` and `times`
define the readers of cells, `layouts` writes the map as a single SELECT, `checks` holds its events
to the rules of the API, and `spool` keeps them on disk. `rehearsal` judges its experiments; then
`storing` puts all events into the store in a single transaction, `experiments` posts deploys and
registers, and `report` describes the result. Only `cli.main` may import this room.
"""
