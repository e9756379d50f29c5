"""The routes of the HTTP API, one module per subject.

A route checks the bounds of its parameters, calls one service and answers with the result; the
service checks what the caller may do. Read `jobs` first.
"""
