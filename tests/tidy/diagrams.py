"""Draws what the documents show of the state table: `python -m tests.tidy.diagrams`."""

from collections.abc import Iterator

from rota.core.states import MEANINGS, TABLE, Ignore, State, Trigger
from tests.tidy.tree import ROOT

JOB_LIFE = ROOT / "docs" / "explain" / "job-life.md"
BEGIN = "<!-- drawn from rota.core.states by `python -m tests.tidy.diagrams`; do not edit -->"
END = "<!-- end of the drawing -->"


def with_drawing(text: str) -> str:
    """The document with its drawn part as the table has it now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{diagram()}\n\n{table()}\n\n{END}{after}"


def diagram() -> str:
    """All ways from one state to another; triggers that lead the same way share an arrow."""
    ways: dict[tuple[State, State], list[Trigger]] = {}
    for before, trigger, after in transitions():
        if before is not after:
            ways.setdefault((before, after), []).append(trigger)
    arrows = [
        f"    {before} --> {after}: {', '.join(triggers)}"
        for (before, after), triggers in ways.items()
    ]
    ends = [f"    {state} --> [*]" for state in State if is_over(state)]
    starts = ["    [*] --> queued: submitted", "    [*] --> held: submitted on hold"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *starts, *arrows, *ends, "```"])


def table() -> str:
    rows = ["| state | a job that | goes on | takes no notice of |", "| --- | --- | --- | --- |"]
    for state in State:
        ways = [f"{trigger}: **{to}**" for before, trigger, to in transitions() if before is state]
        ignored = [trigger for trigger, to in TABLE[state].items() if isinstance(to, Ignore)]
        ignores = "anything" if is_over(state) else ", ".join(ignored)
        rows.append(f"| **{state}** | {MEANINGS[state]} | {', '.join(ways)} | {ignores} |")
    return "\n".join(rows)


def transitions() -> Iterator[tuple[State, Trigger, State]]:
    for before, entries in TABLE.items():
        for trigger, after in entries.items():
            if not isinstance(after, Ignore):
                yield before, trigger, after


def is_over(state: State) -> bool:
    return all(isinstance(to, Ignore) for to in TABLE[state].values())


if __name__ == "__main__":
    JOB_LIFE.write_text(with_drawing(JOB_LIFE.read_text()))
