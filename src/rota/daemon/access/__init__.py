"""Who calls the daemon, and what each caller may do.

A caller comes in as a user id, a token of rota or a token of the cluster; a `Caller` goes out.
Every service passes its `Caller` to the checks of `authorization`, and compares users, scopes and
administrator rights nowhere else. Read `authorization` first.
"""
