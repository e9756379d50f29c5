"""Jobs as callers see them: submit, look up, list, show, change, read logs, run commands.

Requests of callers come in, from the API and from the operator; events for the controller and
views for the answers go out. `submission` turns a request into jobs, `job_lookup` finds a job,
`job_service` shows and changes a job. Read `job_service` first, then `submission`.
"""
