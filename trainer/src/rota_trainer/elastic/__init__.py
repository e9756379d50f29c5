"""Live training: the set of workers changes while the job trains (`rota_trainer.torch.live`).

In: a script's model, optimizer and dataset, and the daemon's orders to switch to a generation.
Out: batches and steps that continue over resizes and worker failures, each sample once per epoch.

Read `trainer` first (the object that a script uses), then `rendezvous` (how workers form a
generation): `membership` gets the orders, `process_group` opens and aborts torch's group,
`state_broadcast` gives new workers the state, `voting` agrees on the step of a switch, and
`sampler` divides the samples.
"""
