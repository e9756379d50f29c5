"""Reconstructs the effective steps from the journals of all workers, and checks them."""

from collections import defaultdict
from typing import Any

from rota_trainer.elastic.sampler import epoch_order, share_bounds

Notes = list[dict[str, Any]]


def final_steps(notes: Notes) -> dict[int, Notes]:
    """The journal entries of each step, from the newest generation that did it: an undone step is
    repeated in a later generation."""
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
    """Check that each sample of each epoch is used once. Only the last step of a generation may be
    missing in the journal of a worker that died in it."""
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
    """Check that all workers have the same parameters and statistics after each step. `notes` are
    of the kind `done`; those of undone steps are ignored."""
    by_step: dict[int, Notes] = defaultdict(list)
    for note in notes:
        by_step[note["done"]].append(note)
    for step, same in by_step.items():
        newest = [each for each in same if each["generation"] == _newest(same)]
        assert len({note["hash"] for note in newest}) == 1, f"step {step}: {newest}"


def _newest(notes: Notes) -> int:
    return max(note["generation"] for note in notes)
