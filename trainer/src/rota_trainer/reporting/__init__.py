"""Reports from a worker to the daemon, and orders from the daemon to the worker.

In: the environment variables of a worker, and the tally of its progress. Out: one HTTP request a
second, sent by a background thread; its responses carry orders (stop, switch to a generation).
Read `messages` first (the wire format), then `reporter` and `loop`. Training never waits for the
network, and no error of this package reaches the training.
"""
