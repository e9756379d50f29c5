"""Controllers for objects that people create with kubectl: TrainingJobs and pods of our scheduler.

Watch events of these objects come in; submits, edits and cancels go to the job service, and
conditions, statuses and Kubernetes events go back to the objects. The server starts the controllers
on a cluster only, and only in the daemon that is the leader.

Read `training_job_controller` first. `training_jobs` is the API client that the store uses as
well.
"""
