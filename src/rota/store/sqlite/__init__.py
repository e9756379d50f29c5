"""The store of a single machine: a SQLite file in WAL mode.

In: batches, queued by `write`. One writer thread commits them in groups, and a batch is
acknowledged after its commit is synced to disk.
Out: query results from a pool of read-only connections.

Read `store` first, then `writer`. `batch_sql` and `row_codec` map records to the SQL in `sql/`.
`migrate` creates and upgrades the file, when the store opens it and in `rota store migrate`;
`check` and `backup` serve the other `rota store` commands.
"""
