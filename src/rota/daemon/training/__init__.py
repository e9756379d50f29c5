"""Progress of running jobs, as reported by their programs.

In: reports of workers through the API (`report_parser`), and GPU memory from the driver
(`gpu_memory`). Out: orders to the workers, progress events to the kernel, samples and profiles to
the store. Read `report_service` first, then `worker_progress`.
"""
