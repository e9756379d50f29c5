"""Explanations: why a job waits, and why it can never run.

A view, the plan of a round and a job enter `explain.WaitExplainer`; a reason leaves it. `reasons`
holds the sentences, and `feasibility` checks whether the nodes of a cluster could ever
run a job.

Read `reasons.py` first.
"""
