"""Workers as processes of this machine. `engine.py` is the way in; everything that a keeper runs
(`nursery`, `keeper`, `child`, `tree`, `cgroups`, `procs`, `logfile`, `files`, `order`) imports as
little as it can, because its memory is copied for every worker."""
