"""The import of history: a file's rows become checked events, deploys and experiments.

`command` is the entry point. A file is read twice over: `tables` reads rows, `cells` and `times`
read their cells, `layouts` turns rows into events, `checks` holds them to the rules of the API, and
`spool` keeps them on disk; then `storing` puts all of them into the store in one transaction,
`experiments` posts deploys and registers, and `report` describes the result. Only `cli.main` may
import this room.
"""
