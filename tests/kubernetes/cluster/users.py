"""Who may speak to the API server, and with which token.

The API server reads its tokens once, when it starts. So there are some people from the start who
may do nothing yet: a test takes one, and gives it what it needs.
"""

import csv
import io
import secrets
from dataclasses import dataclass

from tests.kubernetes.cluster.places import FIRST, SECOND

N_PEOPLE = 50
ADMINISTRATOR = "administrator"


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    token: str
    groups: tuple[str, ...] = ()


def everybody() -> dict[str, Person]:
    """The administrator, the parts, and the people, by name or by the part's name."""
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
    people = {name: (name, ()) for name in map(person_name, range(N_PEOPLE))}
    return {
        key: Person(name, secrets.token_hex(16), groups)
        for key, (name, groups) in (parts | people).items()
    }


def person_name(number: int) -> str:
    return f"person-{number:02}"


def token_file(people: dict[str, Person]) -> str:
    """As the API server reads it: token, name, uid, groups."""
    text = io.StringIO()
    rows = csv.writer(text)
    for person in people.values():
        rows.writerow([person.token, person.name, person.name, ",".join(person.groups)])
    return text.getvalue()


def read_token(text: str, name: str) -> str:
    return next(row[0] for row in csv.reader(io.StringIO(text)) if row[1] == name)
