"""Wire formats: the messages that the daemon and its clients exchange.

Dataclasses whose field names are the JSON keys of the HTTP API; `codec.py` converts them. Fields
and values are public and stay compatible. The client builds requests and reads responses with
them, the daemon the other way round. Imports the standard library and `rota.errors` only.

Read `job_request.py` first: the table of job fields. `jobs.py` has the responses about jobs.
"""
