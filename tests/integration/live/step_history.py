"""Reconstructs the effective steps from the journals of all workers, and checks them."""

from collections import defaultdict
from typing import Any

from rota_trainer.elastic.sampler import epoch_order, share_bounds

Notes = list[dict[str, Any]]


def final_steps(notes: Notes) -> dict[int, Notes]:
    """For each step what its workers wrote down, in the newest generation that did it: a step
    that was undone comes again in a later one."""
    by_step: dict[int, Notes] = defaultdict(list)
    for note in notes:
        by_step[note["step"]].append(note)
    return {
        step: [each for each in by_step[step] if each["generation"] == _newest(by_step[step])]
        for step in sorted(by_step)
    }


def losses(notes: Notes) -> list[float]:
    """The loss of each step, summed over all workers."""
    return [sum(note["loss"] for note in same) for same in final_steps(notes).values()]


def check_samples(notes: Notes, *, samples: int, batch: int, epochs: int) -> None:
    """Each sample of each epoch once. Only the last step of a generation may not have been written
    down by all: one of them died in it."""
    found = final_steps(notes)
    steps = -(-samples // batch)
    assert list(found) == list(range(1, epochs * steps + 1)), "a step is missing"
    last = {same[0]["generation"]: step for step, same in found.items()}
    for step, same in found.items():
        epoch, nth = divmod(step - 1, steps)
        together = epoch_order(samples, seed=0, epoch=epoch)[
            nth * batch : (nth + 1) * batch
        ].tolist()
        assert {note["epoch"] for note in same} == {epoch}
        assert len({note["size"] for note in same}) == 1
        for note in same:
            begin, end = share_bounds(len(together), rank=note["rank"], size=note["size"])
            assert note["samples"] == together[begin:end]
        assert len({note["rank"] for note in same}) == len(same), f"two had the same rank: {same}"
        is_whole = len(same) == same[0]["size"]
        assert is_whole or step == last[same[0]["generation"]], f"step {step}: {same}"


def check_equal(notes: Notes) -> None:
    """All workers have the same parameters and statistics after each step. `notes` are of the
    kind `done`; those of steps that were undone are left out."""
    by_step: dict[int, Notes] = defaultdict(list)
    for note in notes:
        by_step[note["done"]].append(note)
    for step, same in by_step.items():
        newest = [each for each in same if each["generation"] == _newest(same)]
        assert len({note["hash"] for note in newest}) == 1, f"step {step}: {newest}"


def _newest(notes: Notes) -> int:
    return max(note["generation"] for note in notes)
