"""Commands inside a worker's container, and connections to its ports.

A command or a port number comes in; a `WorkerSession` with byte streams goes out. `websocket` opens
the connection through the API server, `sessions` implements both kinds of session on it.

Read `sessions` first.
"""
