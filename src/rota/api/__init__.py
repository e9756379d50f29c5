"""The HTTP API of the daemon.

Requests come in on Unix sockets and TCP; calls of the daemon's services and JSON answers go out.
`uvicorn_protocol` limits connections, `body_limits` limits bodies, `auth` finds the caller,
`strict_json` checks bodies, `routes` calls the services, `errors` turns exceptions into answers.
Read `app` first.
"""
