"""The owner of the scheduler's state: all jobs, all nodes, the plan and the bookings.

Events and plans enter `Kernel`; effects (rows to store, then commands to send) leave it.
`job_table` compares what each job holds with what the plan wants it to hold, `desired_state` keeps
the plan, and `ledger` counts what is booked.

Read `kernel.py` first.
"""
