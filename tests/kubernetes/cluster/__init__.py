"""A real Kubernetes cluster on this machine, for the tests and for people who try things.

Everything of one cluster lives in namespaces of the kernel that are its own: processes, mounts,
bridges and firewall rules end with the first process in there, however that one ends.

- `places`     where things are: caches, folders, addresses
- `binaries`   the programs: where they are; `compiling` builds those that are nowhere
- `parts`      what is started, with which flags; `settings` and `images` are the files for it
- `warden`     outside the namespaces: makes them, waits for their end, sweeps up
- `keeper`     inside, as the first process: starts, stops and pauses the parts
- `control`    the line to the keeper; who holds one keeps the cluster
- `nodes`      what every node has, and a second one for tests that ask for it
- `lifecycle`  up, join and down; `locks` and `cgroups` are for these
- `api`, `fakes`, `people`, `handle`   what a test uses
"""
