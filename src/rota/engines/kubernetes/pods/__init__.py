"""Worker pods: how they are described, started, followed and deleted.

Commands and programs come in; pods go to the cluster, and pod states, terminations and start
problems come back. `manifest` builds a pod, `launcher` starts the pods of a command together,
`tracker` keeps the state of all of them, `termination` and `start_problems` interpret what the
cluster reports, `deadlines` limits how long a pod may wait, and `deleter` deletes pods.
`fetch_code` runs inside a pod and unpacks the shipped code.

Read `state` first, then `tracker`.
"""
