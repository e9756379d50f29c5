"""The rendezvous backend `rota` for torchrun: agents meet at the daemon.

In: torchrun's calls of its rendezvous handler and store. Out: long polls to the daemon, which
knows the members of each generation of the job. Read `messages` first (the wire format, also used
by the daemon), then `handler`. `entry_point` and `messages` must not import torch.
"""
