"""Workers as processes of this machine. `engine.py` is the way in.

Everything that a keeper runs (`nursery`, `keeper`, `sessions`, `child`, `tree`, `cgroups`, `procs`,
`signals`, `output`, `logfile`, `files`, `order`) imports as little as it can: its memory is copied
for every worker.
"""
