"""Whatever is in a folder arrives as it was; whatever is in a manifest stays where it belongs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.client.shipping import scan, ship
from rota.daemon.artifacts.snapshots import Snapshots
from rota.errors import InputError
from rota.wire.manifest import SnapshotManifest
from tests.support.seed_counts import count
from tests.support.shipping import UID, DirectApi, names_in, tree_of

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Every content is flushed to its disk; here no disk has to turn for it."""

names = st.one_of(
    st.sampled_from(["a", "b", "A", "a-b", "a.b", "ab", "-", "...", "a\\b", " ", "\n", "ü", "🦀"]),
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8).filter(
        lambda name: name not in (".", "..", ".rotaignore")
    ),
)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
contents = st.one_of(st.binary(max_size=3), st.binary(min_size=999, max_size=2001))
folders = st.dictionaries(paths, st.tuples(contents, st.booleans()), min_size=1, max_size=8)
targets = st.lists(st.one_of(names, st.just("..")), min_size=1, max_size=4).map("/".join)


def make(folder: Path, files: dict[str, tuple[bytes, bool]]) -> None:
    """As many of the files as find room; a file does not lie in another."""
    folder.mkdir()
    for path, (content, is_executable) in files.items():
        place = folder / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
        place.chmod(0o755 if is_executable else 0o644)


def make_links(folder: Path, links: dict[str, str]) -> None:
    """Those that may be shipped."""
    for path, target in links.items():
        place = folder / path
        if place.parent.is_dir() and not os.path.lexists(place):
            place.symlink_to(target)
            try:
                scan(folder, ())
            except InputError:
                place.unlink()


@settings(max_examples=count(300))
@given(folders, st.dictionaries(paths, targets, max_size=3), folders)
def test_a_folder_arrives_as_it_was(
    first: dict[str, tuple[bytes, bool]],
    links: dict[str, str],
    second: dict[str, tuple[bytes, bool]],
):
    with TemporaryDirectory(dir=FAST) as temporary:
        folder = Path(temporary, "code")
        api = DirectApi(snapshots := Snapshots(Path(temporary, "kept")))
        for job_id, files in (("1q5z43w3", first), ("1q5z43w4", first | second)):
            shutil.rmtree(folder, ignore_errors=True)
            make(folder, files)
            make_links(folder, links)
            snapshot_id = ship(folder, api, ignore=())
            tree = snapshots.unpack(snapshot_id, job_id=job_id, owner=UID, gid=UID)
            assert tree_of(tree) == tree_of(folder)
            assert scan(tree, ()) == scan(folder, ())
        assert len(api.sent) == len(set(api.sent)), "nothing is sent twice"
        snapshots.prune_workdirs([], unused_s=-1)
        snapshots.prune([], unused_s=-1)
        assert names_in(Path(temporary, "kept")) == []
        assert snapshots.used_bytes(owner=UID) == 0


hostile_names = st.one_of(names, st.sampled_from(["..", ".", "", "\0", "\ud800", "x" * 256]))
hostile_paths = st.lists(hostile_names, min_size=1, max_size=5).map("/".join)
hostile_entries = st.one_of(
    st.fixed_dictionaries({"path": hostile_paths, "target": hostile_paths}),
    st.fixed_dictionaries(
        {
            "path": hostile_paths,
            "sha256": st.sampled_from(["0" * 64, "1" * 64, "../x"]),
            "size_bytes": st.sampled_from([0, 1, -1, 2**40, 1.0, None]),
            "is_executable": st.booleans(),
        }
    ),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=3,
    ),
)


@settings(max_examples=count(5_000))
@given(st.lists(hostile_entries, max_size=4))
@example([{"path": "a/up", "target": ".."}, {"path": "a/x", "target": "up/../etc"}])
def test_hostile_manifests_are_refused_or_harmless(entries: list[Any]):
    """What is accepted is made on a real file system, which then says where things are."""
    in_order = sorted(entries, key=lambda each: each["path"] if is_entry(each) else "")
    text = json.dumps({"version": 1, "entries": in_order}).encode()
    try:
        manifest = SnapshotManifest.of_json(text)
    except InputError:
        return
    assert SnapshotManifest.of_json(manifest.to_json()) == manifest
    with TemporaryDirectory(dir=FAST) as temporary:
        top = Path(temporary).resolve() / "outer" / "top"
        top.mkdir(parents=True)
        for each in manifest.entries:
            place = top / each.path
            place.parent.mkdir(parents=True, exist_ok=True)
            assert place.parent.resolve() == place.parent
            assert place.is_relative_to(top)
        for each in manifest.entries:
            if target := getattr(each, "target", None):
                (top / each.path).symlink_to(target)
            else:
                (top / each.path).touch(exist_ok=False)
        for each in manifest.entries:
            assert (top / each.path).resolve().is_relative_to(top)


def is_entry(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("path"), str)
