"""Commands and ports of running jobs, through a real daemon."""
