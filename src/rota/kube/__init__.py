"""Client for the Kubernetes API, used by `engines/kubernetes`, `operator` and `server`.

Requests go in as plain JSON objects; objects, watch events and `ApiError` come out. All requests to
an API server go through here, except the WebSockets of `engines/kubernetes/exec`. `auth` reads the
kubeconfig, `http` sends requests with limits and retries, `client` offers the verbs (get, list,
watch, create, patch, delete), and `informer` delivers every change of one kind of object.
`leader_election`, `secret_store` and `token_review` build on the client.

Read `client` first.
"""
