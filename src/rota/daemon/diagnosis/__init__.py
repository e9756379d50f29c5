"""Names the cause of a failed worker, from the end of its log.

In: a `WorkersExited` event and the workers' logs (`exit_inspection`). Out: the same event with a
finding such as "the GPU ran out of memory (OOM)", and a hint for the user. Read `diagnosis` first;
`catalogue` is the table of known failures and `matchers` are its patterns.
"""
