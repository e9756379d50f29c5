"""Copy the output of worker pods to log files that outlive the pods.

Log streams of the API server come in; log files go to disk. `collector` follows the pods, `parser`
splits a stream into lines and removes repeated ones, `pacing` limits requests to slow nodes.

Read `collector` first.
"""
