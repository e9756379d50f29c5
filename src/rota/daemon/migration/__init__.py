"""Moves queued jobs to another daemon that the user names.

In: move requests from the API (`requests`). Out: the job submitted at the target and cancelled
here, or released here with the reason. Every step is written to a journal first (`file_journal` on
one machine, `secret_journal` on a cluster). Read `migrator` first.
"""
