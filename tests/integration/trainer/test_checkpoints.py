"""Checkpoints on a real disk: atomic, limited in number, with checks of damage and owner."""

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rota_trainer.checkpoint.manifest import NAME, check, read
from rota_trainer.checkpoint.store import STATE, CheckpointStore
from rota_trainer.progress.position import CheckpointSource, Position

OURS = CheckpointSource("job", "code")


def saving(text: str) -> Callable[[Path], object]:
    """A folder with two files, one of them in a subfolder."""

    def save(path: Path) -> None:
        (path / "more").mkdir(parents=True)
        (path / "model.bin").write_text(text * 1000)
        (path / "more" / "optimizer.bin").write_text(text)

    return save


def write(checkpoints: CheckpointStore, *texts: str) -> list[Path]:
    return [checkpoints.write(saving(text), Position(n)) for n, text in enumerate(texts, start=1)]


def found(folder: Path, owner: CheckpointSource = OURS) -> str | None:
    newest = CheckpointStore(folder, owner).newest()
    return None if newest is None else (newest.path / "more" / "optimizer.bin").read_text()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_newest_checkpoint_is_found_with_its_position(tmp_path: Path) -> None:
    checkpoints = CheckpointStore(tmp_path, OURS)
    write(checkpoints, "a", "b")
    checkpoints.write(saving("c"), Position(7, 3, 7.25))
    newest = CheckpointStore(tmp_path, OURS).newest()
    assert newest is not None
    assert newest.position == Position(7, 3, 7.25)
    assert found(tmp_path) == "c"


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    write(CheckpointStore(tmp_path, OURS, keep=3), *"abcde")
    assert names(tmp_path) == [f"00000{n}-epoch-{n}-step-0" for n in (3, 4, 5)]


def test_single_file_is_saved_like_a_folder(tmp_path: Path) -> None:
    CheckpointStore(tmp_path, OURS).write(lambda path: path.write_text("x"), Position())
    newest = CheckpointStore(tmp_path, OURS).newest()
    assert newest is not None
    assert newest.path.read_text() == "x"
    add_suffix: Callable[[Path], object] = lambda path: Path(f"{path}.npz").write_text("y")  # noqa: E731
    CheckpointStore(tmp_path, OURS).write(add_suffix, Position())
    newest = CheckpointStore(tmp_path, OURS).newest()
    assert newest is not None
    assert Path(f"{newest.path}.npz").read_text() == "y"


def truncate(folder: Path) -> None:
    os.truncate(folder / STATE / "model.bin", 500)


def flip_a_bit(folder: Path) -> None:
    path = folder / STATE / "model.bin"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def make_empty(folder: Path) -> None:
    os.truncate(folder / STATE / "more" / "optimizer.bin", 0)


def remove_a_file(folder: Path) -> None:
    (folder / STATE / "more" / "optimizer.bin").unlink()


def add_a_file(folder: Path) -> None:
    (folder / STATE / "another").write_text("")


def put_a_pipe_in_place(folder: Path) -> None:
    remove_a_file(folder)
    os.mkfifo(folder / STATE / "more" / "optimizer.bin")


def remove_the_manifest(folder: Path) -> None:
    (folder / NAME).unlink()


def empty_the_manifest(folder: Path) -> None:
    (folder / NAME).write_text("")


def cut_the_manifest(folder: Path) -> None:
    os.truncate(folder / NAME, 40)


def fill_the_manifest_with_zeros(folder: Path) -> None:
    (folder / NAME).write_bytes(b"\0" * 4096)


def nest_the_manifest(folder: Path) -> None:
    (folder / NAME).write_text("[" * 100_000)


def make_the_manifest_a_list(folder: Path) -> None:
    (folder / NAME).write_text("[]")


def make_the_manifest_a_folder(folder: Path) -> None:
    remove_the_manifest(folder)
    (folder / NAME).mkdir()


def make_the_manifest_a_pipe(folder: Path) -> None:
    remove_the_manifest(folder)
    os.mkfifo(folder / NAME)


def move_the_position(folder: Path) -> None:
    raw = json.loads((folder / NAME).read_text())
    raw["checkpoint"]["position"]["epoch"] += 1
    (folder / NAME).write_text(json.dumps(raw))


def sign(folder: Path, **fields: object) -> None:
    """Write another manifest with a valid checksum."""
    body = {**json.loads((folder / NAME).read_text())["checkpoint"], **fields}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (folder / NAME).write_text(json.dumps({"sum": digest, "checkpoint": body}))


def list_no_names(folder: Path) -> None:
    sign(folder, files=["state/model.bin"])


def write_the_position_in_words(folder: Path) -> None:
    sign(folder, position={"epoch": "two", "step": 0, "progress": 2.0})


def go_to_a_time_before_the_start(folder: Path) -> None:
    sign(folder, position={"epoch": -2, "step": 0, "progress": -2.0})


DAMAGES = [
    *(truncate, flip_a_bit, make_empty, remove_a_file, add_a_file, put_a_pipe_in_place),
    *(remove_the_manifest, empty_the_manifest, cut_the_manifest, fill_the_manifest_with_zeros),
    *(nest_the_manifest, make_the_manifest_a_list, make_the_manifest_a_folder),
    *(make_the_manifest_a_pipe, move_the_position, list_no_names),
    *(write_the_position_in_words, go_to_a_time_before_the_start),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_is_skipped_for_the_one_before(
    damage: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, newest = write(CheckpointStore(tmp_path, OURS), "a", "b")
    damage(newest)
    assert found(tmp_path) == "a"
    assert "is corrupt and is skipped" in capsys.readouterr().err


def test_file_in_place_of_a_checkpoint_counts_as_damaged(tmp_path: Path) -> None:
    write(CheckpointStore(tmp_path, OURS), "a")
    (tmp_path / "000009-epoch-9-step-0").write_text("")
    assert found(tmp_path) == "a"


def test_damaged_checkpoint_does_not_count_as_kept(tmp_path: Path) -> None:
    first, second = write(CheckpointStore(tmp_path, OURS), "a", "b")
    flip_a_bit(second)
    checkpoints = CheckpointStore(tmp_path, OURS)
    checkpoints.newest()
    third = checkpoints.write(saving("c"), Position(3))
    assert names(tmp_path) == [first.name, third.name]


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (CheckpointSource("other", "code"), "another job (other)"),
        (CheckpointSource("job", "edited"), "other code"),
    ],
)
def test_checkpoint_of_another_owner_is_rejected_and_kept(
    theirs: CheckpointSource, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = write(CheckpointStore(tmp_path, theirs), "x", "y")
    assert found(tmp_path) is None
    said = capsys.readouterr().err
    assert said.count("OTHER: ") == 1
    assert words in said
    ours = write(CheckpointStore(tmp_path, OURS, keep=1), "a", "b")
    assert names(tmp_path) == [*(path.name for path in others), ours[-1].name]
    assert found(tmp_path) == "b"
    assert found(tmp_path, theirs) == "y"


def test_failed_save_leaves_no_files(tmp_path: Path) -> None:
    checkpoints = CheckpointStore(tmp_path, OURS)
    (before,) = write(checkpoints, "a")

    def break_off(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        checkpoints.write(break_off, Position(2))
    with pytest.raises(OSError, match="the save function wrote nothing"):
        checkpoints.write(lambda _: None, Position(2))
    with pytest.raises(OSError, match="not a regular file"):
        checkpoints.write(os.mkfifo, Position(2))
    assert names(tmp_path) == [before.name]


def test_files_of_a_dead_writer_are_removed_and_those_of_a_live_one_stay(tmp_path: Path) -> None:
    left = tmp_path / ".unfinished-1-1"
    left.mkdir()
    (left / STATE).write_text("half")
    seen: list[list[str]] = []

    def save_beside(path: Path) -> None:
        path.write_text("outer")
        write(CheckpointStore(tmp_path, OURS), "inner")
        seen.append(names(path.parent))

    CheckpointStore(tmp_path, OURS).write(save_beside, Position(2))
    assert seen == [[STATE]]
    assert names(tmp_path) == ["000001-epoch-1-step-0", "000002-epoch-2-step-0"]


def test_concurrent_writers_do_not_conflict(tmp_path: Path) -> None:
    def write_some(text: str) -> None:
        for epoch in range(5):
            CheckpointStore(tmp_path, OURS, keep=100).write(saving(text), Position(epoch))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write_some, "abcd"))
    assert len(names(tmp_path)) == 20
    for folder in tmp_path.iterdir():
        check(folder, read(folder))


def test_keeping_no_checkpoint_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        CheckpointStore(tmp_path, OURS, keep=0)
