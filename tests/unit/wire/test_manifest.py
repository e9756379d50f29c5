"""A manifest that exists can be unpacked without harm, whoever made it."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import pytest

from rota.errors import InputError
from rota.wire import manifest as bounds
from rota.wire.manifest import Entry, File, Link, Manifest

SHA = hashlib.sha256(b"hello").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


def file(path: str, sha256: str = SHA, *, size: int = 5, is_executable: bool = False) -> File:
    return File(path, sha256, size_bytes=size, is_executable=is_executable)


def as_sent(*entries: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({"version": 1, "entries": entries} | changes).encode()


def sent_file(name: str, **changes: Any) -> dict[str, Any]:
    return {"path": name, "sha256": SHA, "size_bytes": 5, "is_executable": False} | changes


def refusal(*entries: Entry) -> str:
    with pytest.raises(InputError) as caught:
        Manifest.of(entries)
    return str(caught.value)


def test_text_and_back():
    made = Manifest.of([file("b/run.sh", is_executable=True), Link("c", "b/run.sh"), file("a")])
    assert [each.path for each in made.entries] == ["a", "b/run.sh", "c"]
    assert Manifest.of_json(made.to_json()) == made
    assert made.blobs == {SHA: 5}


def test_the_id_is_the_hash_of_a_text_that_never_changes():
    """Snapshots on disk are known by it: another text would ship every folder anew."""
    made = Manifest.of([file("a/ü\\"), Link("l", "a")])
    assert made.to_json().decode() == (
        '{"entries":[{"is_executable":false,"path":"a/ü\\\\","sha256":"'
        + SHA
        + '","size_bytes":5},{"path":"l","target":"a"}],"version":1}'
    )
    assert made.snapshot_id == hashlib.sha256(made.to_json()).hexdigest()
    spaced = json.dumps(json.loads(made.to_json()), indent=4).encode()
    assert Manifest.of_json(spaced).snapshot_id == made.snapshot_id


@pytest.mark.parametrize(
    "change",
    [
        file("a", OTHER),
        file("a", is_executable=True),
        file("b"),
        Link("a", "a2"),
    ],
)
def test_any_difference_makes_another_id(change: Entry):
    assert Manifest.of([change]).snapshot_id != Manifest.of([file("a")]).snapshot_id


@pytest.mark.parametrize(
    "path",
    ["a", ".hidden", "...", "..a", "a b", "a\\..\\b", "C:\\x", "-rf", "~", "a\nb", "ü", "a" * 255],
)
def test_names_that_are_allowed(path: str):
    assert Manifest.of([file(path)]).entries[0].path == path


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
def test_paths_that_are_refused(path: str):
    with pytest.raises(InputError):
        Manifest.of_json(as_sent(sent_file(path)))


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
def test_what_was_sent_and_is_refused(text: bytes):
    with pytest.raises(InputError):
        Manifest.of_json(text)


def test_a_refusal_names_the_place():
    with pytest.raises(InputError, match=r"^manifest, field 'entries\[1\]': must be a file"):
        Manifest.of_json(as_sent(sent_file("a"), sent_file("b", size_bytes="x")))
    assert refusal(file("a/../b")).startswith("'a/../b': must be a path from the folder down")


def test_names_that_differ_in_case_only_are_two():
    assert len(Manifest.of([file("Makefile"), file("makefile")]).entries) == 2


@pytest.mark.parametrize("parent", [file("a"), Link("a", "b")])
def test_only_a_folder_holds_something(parent: Entry):
    """A link as a folder would take what is unpacked into it elsewhere."""
    assert refusal(parent, file("a-b"), file("a/b/c")) == (
        "'a/b/c': it lies in 'a', which is no folder"
    )


def test_bounds_on_sizes():
    most = bounds.MAX_FILE_BYTES
    Manifest.of(file(f"{number}", size=most) for number in range(4))
    assert "'a': it has 268,435,457 bytes, a file can have 268,435,456" in (
        refusal(file("a", size=most + 1))
    )
    five = [file(f"{number}", size=most) for number in range(5)]
    assert "1,342,177,280 bytes in all, at most 1,073,741,824 can be shipped" in refusal(*five)
    assert "another size" in refusal(file("a"), file("b", size=6))


def test_bounds_on_counts():
    most = [file(f"{number}") for number in range(bounds.MAX_FILES)]
    Manifest.of(most)
    assert "more than 20,000 files; leave out" in refusal(*most, file("x"))
    deep = [file(f"{number}/" + "x/" * 62 + "y") for number in range(318)]
    assert len(Manifest.of(deep[:317]).folders) == 317 * 63
    assert "more than 20,000 folders" in refusal(*deep)


def test_a_list_that_is_too_long_to_be_sent_is_refused_by_its_maker():
    long = "/".join(["x" * 250] * 4)
    made = Manifest.of(file(f"{long}/{number}") for number in range(8_000))
    with pytest.raises(InputError, match="longer than 8 MiB"):
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
    Manifest.of([file("a/b/file"), *(Link(*each) for each in links.items())])


@pytest.mark.parametrize(
    "links",
    [
        {"l": "/"},
        {"l": "/etc/passwd"},
        {"l": ".."},
        {"l": "a/../.."},
        {"a/l": "../.."},
        {"l": "nothing/../../x"},
        # The text of `l` stays inside; where it leads does not.
        {"a/b/up": "../..", "a/b/l": "up/../x"},
        {"a/b/up": "../..", "l": "a/b/up/.."},
        {"a/b/up": "../..", "up2": "a/b/up/../x"},
    ],
)
def test_links_that_lead_out(links: dict[str, str]):
    words = refusal(file("a/b/file"), *(Link(*each) for each in links.items()))
    assert "a link that leads out of the folder" in words
    assert "mount what it leads to" in words


@pytest.mark.parametrize("links", [{"l": "l"}, {"l": "m/x", "m": "l"}, {"a/l": "../a/l/x"}])
def test_links_that_lead_round_in_circles(links: dict[str, str]):
    assert "in circles" in refusal(*(Link(*each) for each in links.items()))


@pytest.mark.parametrize("target", ["\0", "", "x" * 1025, "\udcff"])
def test_targets_that_are_no_paths(target: str):
    refusal(Link("l", target))


def test_tangled_links_are_given_up_soon():
    """Each leads through up to thirty before it, by the longest of ways."""
    detour = "x/../" * 190
    links = [Link(f"{n:05}", f"{detour}{n - 1:05}" if n % 30 else "x") for n in range(5_000)]
    started_s = time.process_time()
    assert "tangled" in refusal(*links)
    assert time.process_time() - started_s < 10
