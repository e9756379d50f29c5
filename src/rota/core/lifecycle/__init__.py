"""The life of one job: which event leads to which state, with which data and commands.

An event about a job enters `reducer`, which returns a reaction with a trigger. The table in
`states` maps state and trigger to the next state, `transitions` builds the job in that state, and
`commands_for` returns the commands that the new state requires. All functions are pure functions of
one job.

Read `states.py` first, then `reducer.py`.
"""
