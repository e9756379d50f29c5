"""The store of a Kubernetes cluster: TrainingJob objects are the truth, a local file has history.

In: batches. A submit becomes a TrainingJob before it is acknowledged; a fence (attempt and
generation) is in the status of the TrainingJob before any worker starts.
Out: the state that a new leader rebuilds from the API server alone; query results from the local
file.

Read `store` first, then `status_writer`, which writes the objects. `crd_codec` defines their
content and `api_port` the calls to the API server, which `rota.operator` implements.
"""
