"""A valid manifest is safe to unpack, even from an untrusted client."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import pytest

from rota.errors import InputError
from rota.wire import manifest as bounds
from rota.wire.manifest import ManifestEntry, ManifestFile, ManifestLink, SnapshotManifest

SHA = hashlib.sha256(b"hello").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


def file(
    path: str, sha256: str = SHA, *, size: int = 5, is_executable: bool = False
) -> ManifestFile:
    return ManifestFile(path, sha256, size_bytes=size, is_executable=is_executable)


def as_sent(*entries: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({"version": 1, "entries": entries} | changes).encode()


def sent_file(name: str, **changes: Any) -> dict[str, Any]:
    return {"path": name, "sha256": SHA, "size_bytes": 5, "is_executable": False} | changes


def refusal(*entries: ManifestEntry) -> str:
    with pytest.raises(InputError) as caught:
        SnapshotManifest.of(entries)
    return str(caught.value)


def test_json_round_trip():
    made = SnapshotManifest.of(
        [file("b/run.sh", is_executable=True), ManifestLink("c", "b/run.sh"), file("a")]
    )
    assert [each.path for each in made.entries] == ["a", "b/run.sh", "c"]
    assert SnapshotManifest.of_json(made.to_json()) == made
    assert made.blobs == {SHA: 5}


def test_snapshot_id_never_changes():
    """Snapshots on disk have this id: with another id, every directory would be uploaded again."""
    made = SnapshotManifest.of([file("a/ü\\"), ManifestLink("l", "a")])
    assert made.to_json().decode() == (
        '{"entries":[{"is_executable":false,"path":"a/ü\\\\","sha256":"'
        + SHA
        + '","size_bytes":5},{"path":"l","target":"a"}],"version":1}'
    )
    assert made.snapshot_id == hashlib.sha256(made.to_json()).hexdigest()
    spaced = json.dumps(json.loads(made.to_json()), indent=4).encode()
    assert SnapshotManifest.of_json(spaced).snapshot_id == made.snapshot_id


@pytest.mark.parametrize(
    "change",
    [
        file("a", OTHER),
        file("a", is_executable=True),
        file("b"),
        ManifestLink("a", "a2"),
    ],
)
def test_any_difference_changes_the_id(change: ManifestEntry):
    assert SnapshotManifest.of([change]).snapshot_id != SnapshotManifest.of([file("a")]).snapshot_id


@pytest.mark.parametrize(
    "path",
    ["a", ".hidden", "...", "..a", "a b", "a\\..\\b", "C:\\x", "-rf", "~", "a\nb", "ü", "a" * 255],
)
def test_valid_names(path: str):
    assert SnapshotManifest.of([file(path)]).entries[0].path == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../a",
        "a/../../b",
        "a/..",
        ".",
        "./a",
        "a//b",
        "a/",
        "a\0b",
        "\ud800",
        "a" * 256,
        "ü" * 128,
        "a/" * 64 + "a",
        "/".join(["a" * 205] * 5),
    ],
)
def test_invalid_paths(path: str):
    with pytest.raises(InputError):
        SnapshotManifest.of_json(as_sent(sent_file(path)))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"version":1,"entries":' + b"9" * 5_000 + b"}",
        as_sent(version=2),
        as_sent(version=True),
        as_sent(version="1"),
        as_sent(more=1),
        as_sent(entries={}),
        as_sent(entries=[None]),
        as_sent(sent_file("a", path=1)),
        as_sent(sent_file("a", sha256=None)),
        as_sent(sent_file("a", sha256=SHA.upper())),
        as_sent(sent_file("a", sha256=SHA + "\n")),
        as_sent(sent_file("a", sha256="../../x")),
        as_sent(sent_file("a", size_bytes=-1)),
        as_sent(sent_file("a", size_bytes=5.0)),
        as_sent(sent_file("a", size_bytes=True)),
        as_sent(sent_file("a", size_bytes="5")),
        as_sent(sent_file("a", is_executable=1)),
        as_sent(sent_file("a", mode=0o4755)),
        as_sent(sent_file("a", target="b")),
        as_sent({"path": "a"}),
        as_sent({"path": "a", "target": None}),
        as_sent({"path": "a", "target": "b", "size_bytes": 1}),
        as_sent(sent_file("b"), sent_file("a")),
        as_sent(sent_file("a"), sent_file("a")),
        as_sent(sent_file("a"), {"path": "a", "target": "b"}),
        as_sent() + b" " * bounds.MAX_JSON_BYTES,
    ],
)
def test_invalid_json(text: bytes):
    with pytest.raises(InputError):
        SnapshotManifest.of_json(text)


def test_error_names_the_entry():
    with pytest.raises(InputError, match=r"^manifest, field 'entries\[1\]': must be a file"):
        SnapshotManifest.of_json(as_sent(sent_file("a"), sent_file("b", size_bytes="x")))
    assert refusal(file("a/../b")).startswith("'a/../b': must be a relative path")


def test_names_are_case_sensitive():
    assert len(SnapshotManifest.of([file("Makefile"), file("makefile")]).entries) == 2


@pytest.mark.parametrize("parent", [file("a"), ManifestLink("a", "b")])
def test_parent_must_be_a_directory(parent: ManifestEntry):
    """A link as parent would redirect the files that are unpacked into it."""
    assert refusal(parent, file("a-b"), file("a/b/c")) == ("'a/b/c': 'a' is not a directory")


def test_size_limits():
    most = bounds.MAX_FILE_BYTES
    SnapshotManifest.of(file(f"{number}", size=most) for number in range(4))
    assert "'a': the file has 268,435,457 bytes, the limit is 268,435,456" in (
        refusal(file("a", size=most + 1))
    )
    five = [file(f"{number}", size=most) for number in range(5)]
    assert "1,342,177,280 bytes in total, the limit is 1,073,741,824" in refusal(*five)
    assert "a different size" in refusal(file("a"), file("b", size=6))


def test_count_limits():
    most = [file(f"{number}") for number in range(bounds.MAX_FILES)]
    SnapshotManifest.of(most)
    assert "more than 20,000 files; exclude" in refusal(*most, file("x"))
    deep = [file(f"{number}/" + "x/" * 62 + "y") for number in range(318)]
    assert len(SnapshotManifest.of(deep[:317]).folders) == 317 * 63
    assert "more than 20,000 directories" in refusal(*deep)


def test_manifest_json_has_a_size_limit():
    long = "/".join(["x" * 250] * 4)
    made = SnapshotManifest.of(file(f"{long}/{number}") for number in range(8_000))
    with pytest.raises(InputError, match="larger than 8 MiB"):
        made.to_json()


@pytest.mark.parametrize(
    "links",
    [
        {"l": "a"},
        {"l": "a/b/../b/./file"},
        {"l": "nothing/there"},
        {"a/l": ".."},
        {"a/b/l": "../../a//b"},
        {"one": "two", "two": "three", "three": "a"},
        {"a/up": "..", "a/l": "up/up2", "up2": "a/b"},
    ],
)
def test_links_that_stay_inside(links: dict[str, str]):
    SnapshotManifest.of([file("a/b/file"), *(ManifestLink(*each) for each in links.items())])


@pytest.mark.parametrize(
    "links",
    [
        {"l": "/"},
        {"l": "/etc/passwd"},
        {"l": ".."},
        {"l": "a/../.."},
        {"a/l": "../.."},
        {"l": "nothing/../../x"},
        # The text of `l` stays inside the directory, but its resolved target does not.
        {"a/b/up": "../..", "a/b/l": "up/../x"},
        {"a/b/up": "../..", "l": "a/b/up/.."},
        {"a/b/up": "../..", "up2": "a/b/up/../x"},
    ],
)
def test_links_that_leave_the_directory(links: dict[str, str]):
    words = refusal(file("a/b/file"), *(ManifestLink(*each) for each in links.items()))
    assert "symbolic link leads out of the directory" in words
    assert "mount its target" in words


@pytest.mark.parametrize("links", [{"l": "l"}, {"l": "m/x", "m": "l"}, {"a/l": "../a/l/x"}])
def test_link_loops(links: dict[str, str]):
    assert "symbolic link loop" in refusal(*(ManifestLink(*each) for each in links.items()))


@pytest.mark.parametrize("target", ["\0", "", "x" * 1025, "\udcff"])
def test_invalid_targets(target: str):
    refusal(ManifestLink("l", target))


def test_complex_links_hit_the_step_limit():
    """Each link leads through up to thirty earlier links, by the longest way."""
    detour = "x/../" * 190
    links = [
        ManifestLink(f"{n:05}", f"{detour}{n - 1:05}" if n % 30 else "x") for n in range(5_000)
    ]
    started_s = time.process_time()
    assert "too complex" in refusal(*links)
    assert time.process_time() - started_s < 10
