"""The token that `kubectl` would use, for a daemon that authenticates users by their cluster.

Only contexts with `--kubernetes` use this module. The token is read again for each command, because
most tokens expire within an hour.
"""

from __future__ import annotations

from rota.errors import UserError
from rota.kubeconfig import load_context, read_token


def token_of(kubeconfig: str, kube_context: str) -> str:
    """Return the token of the user of a kubeconfig context. Empty arguments: kubectl's defaults."""
    user = load_context(kubeconfig, kube_context).user
    token = read_token(user)
    if not token:
        what = f"{user.path}: the user has no token, only a certificate or a password"
        hint = "create a token with 'kubectl create token NAME' and give its file with --token-file"
        raise UserError(what, hint)
    return token
