"""The lake, an annex: the sealed log in files, its reader, engines of whole days, and hot days."""
