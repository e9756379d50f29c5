"""`rota projects`: divides GPUs among projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.cli.command import command

if TYPE_CHECKING:
    from rota.core.sharing.fair_share import Claim

HELP = "Divide GPUs among projects."

CASE_FIELDS: dict[str, None] = dict.fromkeys(("gpus", "projects"))
PROJECT_FIELDS: dict[str, None] = dict.fromkeys(
    ("name", "wants", "quota", "weight", "limit", "priority", "created_s")
)
MAX_GPUS = 1e9


@command("divide")
def divide() -> None:
    """Divide the GPUs of cases from stdin and print the GPUs per project.

    A case is one line of JSON.

    For {"gpus": 8, "projects": [{"name": "a", "quota": 3, "wants": 9},
    {"name": "b", "quota": 1, "wants": 9}]} it prints {"a": 6, "b": 2}.
    """
    from rota.case_fields import list_of, number, object_of
    from rota.cli.cases import print_answers
    from rota.core.sharing.fair_share import fair_shares
    from rota.errors import UserError, shown

    def answer(case: object) -> dict[str, float]:
        hint = "a case is {'gpus': 8, 'projects': [...]}"
        fields = object_of(case, "", known=CASE_FIELDS, required=CASE_FIELDS, hint=hint)
        n_gpus = number(fields["gpus"], "gpus", least=0, most=MAX_GPUS)
        claims: dict[str, Claim] = {}
        for place, given in enumerate(list_of(fields["projects"], "projects")):
            claim = _claim(given, f"projects[{place}]")
            if claim.name in claims:
                raise UserError(
                    f"field 'projects[{place}].name': two projects have the name"
                    f" '{shown(claim.name)}'"
                )
            claims[claim.name] = claim
        shares = fair_shares(n_gpus, claims.values())
        return {name: int(n) if n == int(n) else n for name, n in shares.items()}

    print_answers(answer)


def _claim(given: object, where: str) -> Claim:
    from rota.case_fields import name_of, number, object_of, whole
    from rota.core.sharing.fair_share import Claim

    fields = object_of(given, where, known=PROJECT_FIELDS, required=("name", "wants"))

    def amount(name: str) -> float | None:
        value = fields.get(name)
        return None if value is None else number(value, f"{where}.{name}", least=0, most=MAX_GPUS)

    created_s = fields.get("created_s")
    return Claim(
        name=name_of(fields["name"], f"{where}.name"),
        wants=number(fields["wants"], f"{where}.wants", least=0, most=MAX_GPUS),
        quota=amount("quota") or 0.0,
        weight=amount("weight"),
        limit=amount("limit"),
        priority=whole(fields.get("priority", 0), f"{where}.priority"),
        created_s=0.0 if created_s is None else number(created_s, f"{where}.created_s"),
    )


COMMANDS = (divide,)
