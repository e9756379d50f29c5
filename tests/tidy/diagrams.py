"""Generates the drawings of the state table in docs/explain/job-life.md."""

from collections.abc import Iterator
from pathlib import Path

from rota.core.lifecycle.states import MEANINGS, TABLE, IgnoredTrigger, JobState, Trigger
from tests.tidy.tree import ROOT

JOB_LIFE = ROOT / "docs" / "explain" / "job-life.md"
BEGIN = "<!-- drawn from rota.core.lifecycle.states by scripts/generate; do not edit -->"
END = "<!-- end of the drawing -->"


def generated_files() -> dict[Path, str]:
    return {JOB_LIFE: with_drawing(JOB_LIFE.read_text())}


def with_drawing(text: str) -> str:
    """The document with its generated part replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{diagram()}\n\n{table()}\n\n{END}{after}"


def diagram() -> str:
    """All transitions between two states. Triggers of the same transition share an arrow."""
    ways: dict[tuple[JobState, JobState], list[Trigger]] = {}
    for before, trigger, after in transitions():
        if before is not after:
            ways.setdefault((before, after), []).append(trigger)
    arrows = [
        f"    {before} --> {after}: {', '.join(triggers)}"
        for (before, after), triggers in ways.items()
    ]
    ends = [f"    {state} --> [*]" for state in JobState if is_over(state)]
    starts = ["    [*] --> queued: submitted", "    [*] --> held: submitted on hold"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *starts, *arrows, *ends, "```"])


def table() -> str:
    rows = [
        "| state | the job | trigger: next state | ignored triggers |",
        "| --- | --- | --- | --- |",
    ]
    for state in JobState:
        ways = [f"{trigger}: **{to}**" for before, trigger, to in transitions() if before is state]
        ignored = [
            trigger for trigger, to in TABLE[state].items() if isinstance(to, IgnoredTrigger)
        ]
        ignores = "all" if is_over(state) else ", ".join(ignored)
        rows.append(f"| **{state}** | {MEANINGS[state]} | {', '.join(ways)} | {ignores} |")
    return "\n".join(rows)


def transitions() -> Iterator[tuple[JobState, Trigger, JobState]]:
    for before, entries in TABLE.items():
        for trigger, after in entries.items():
            if not isinstance(after, IgnoredTrigger):
                yield before, trigger, after


def is_over(state: JobState) -> bool:
    return all(isinstance(to, IgnoredTrigger) for to in TABLE[state].values())
