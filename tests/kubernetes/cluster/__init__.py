"""A real Kubernetes cluster on this machine, for tests and for development.

A cluster runs in its own kernel namespaces: its processes, mounts, bridges and firewall rules end
with the first process in them.

- `layout`: caches, folders and addresses
- `binaries`: finds the programs, or builds them
- `components`: the commands of all parts; `config_files` and `images` are their files
- `namespace_supervisor`: outside the namespaces: creates them, waits for their end, cleans up
- `init_process`: inside, as the first process: starts, stops and pauses the parts
- `control`: the connection to the init process; an open connection keeps the cluster
- `nodes`: the files of a node, and a second node
- `lifecycle`: up, join and down; `file_locks` is for these
- `api`, `kwok_nodes`, `users`, `handle`: what a test uses
"""
