"""Nodes of the cluster as the scheduler may use them.

Watch events of nodes and foreign pods come in; `NodeSeen` and `NodeLost` events go out. `tracker`
keeps the state, `inventory` computes one node without I/O, `taints` matches taints and tolerations.

Read `inventory` first.
"""
