"""Users of the API server and their tokens.

The API server reads tokens only at its start. So some users without permissions exist from the
start: a test takes one and grants what it needs.
"""

import csv
import io
import secrets
from dataclasses import dataclass

from tests.kubernetes.cluster.layout import FIRST, SECOND

N_USERS = 50
ADMINISTRATOR = "administrator"


@dataclass(frozen=True, slots=True)
class ClusterUser:
    name: str
    token: str
    groups: tuple[str, ...] = ()


def all_users() -> dict[str, ClusterUser]:
    """The administrator, the parts and the test users, by name."""
    parts = {
        "controller-manager": ("system:kube-controller-manager", ()),
        "scheduler": ("system:kube-scheduler", ()),
        "proxy": ("system:kube-proxy", ()),
        **{
            post.part("kubelet"): (f"system:node:{post.node}", ("system:nodes",))
            for post in (FIRST, SECOND)
        },
        "kwok": ("kwok", ("system:masters",)),
        ADMINISTRATOR: (ADMINISTRATOR, ("system:masters",)),
    }
    people = {name: (name, ()) for name in map(user_name, range(N_USERS))}
    return {
        key: ClusterUser(name, secrets.token_hex(16), groups)
        for key, (name, groups) in (parts | people).items()
    }


def user_name(number: int) -> str:
    return f"person-{number:02}"


def token_file(people: dict[str, ClusterUser]) -> str:
    """The token file of the API server: token, name, uid, groups."""
    text = io.StringIO()
    rows = csv.writer(text)
    for person in people.values():
        rows.writerow([person.token, person.name, person.name, ",".join(person.groups)])
    return text.getvalue()


def read_token(text: str, name: str) -> str:
    return next(row[0] for row in csv.reader(io.StringIO(text)) if row[1] == name)
