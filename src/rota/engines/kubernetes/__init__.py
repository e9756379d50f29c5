"""The Kubernetes engine: runs each worker of a job as a pod.

Commands of the kernel come in through `engine`; events about workers and nodes go out through
`reconciler`. `pods` builds, starts, follows and deletes worker pods, `nodes` turns nodes of the
cluster into nodes of the scheduler, `gpu_sharing` reserves GPUs that several workers share, `logs`
copies output to disk, and `exec` opens sessions in the container of a worker. `external_pods`
handles pods that users created for our scheduler.

Read `engine` first, then `reconciler`.
"""
