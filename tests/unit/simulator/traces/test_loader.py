from pathlib import Path

import pytest

from rota.errors import InputError, UserError
from rota.simulator.traces import load
from rota.simulator.traces.loader import READERS
from rota.simulator.traces.native import COLUMNS
from rota.simulator.traces.synthetic import LIMITS

DOCS = Path(__file__).parents[4] / "docs" / "reference" / "traces.md"
OWN = "name,submit_s,gpus,duration_s\njob,0,1,60\n"


@pytest.fixture(autouse=True)
def no_traces_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ROTA_TRACES", raising=False)
    monkeypatch.chdir(tmp_path)


def collection(tmp_path: Path) -> Path:
    folder = tmp_path / "collection"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "t.csv").write_text(OWN)
    return folder


def test_a_file_as_written(tmp_path: Path):
    (tmp_path / "t.csv").write_text(OWN)
    assert load("t.csv").name == "t.csv"


def test_a_file_in_the_folder_of_traces(tmp_path: Path):
    assert load("mine/t.csv", collection(tmp_path)).jobs[0].spec.name == "job"


def test_a_file_in_the_folder_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ROTA_TRACES", str(collection(tmp_path)))
    assert load("mine/t.csv").jobs[0].spec.name == "job"


def test_a_missing_file_says_how_to_name_the_folder():
    with pytest.raises(UserError) as caught:
        load("philly/philly.csv")
    assert str(caught.value).startswith(
        "trace 'philly/philly.csv' not found: tried 'philly/philly.csv'; pass a file, voda:run_1"
    )
    assert "--traces DIR or ROTA_TRACES" in caught.value.hint


def test_a_missing_file_says_every_place_that_was_tried(tmp_path: Path):
    with pytest.raises(UserError) as caught:
        load("x.csv", tmp_path)
    assert f"tried 'x.csv' and '{tmp_path / 'x.csv'}'" in str(caught.value)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_names_that_no_file_can_have(name: str):
    with pytest.raises(UserError):
        load(name)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "t.csv").write_text(OWN)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"^t.csv: cannot be read: Permission denied"):
        load("t.csv")


def test_the_reference_page_names_everything_there_is():
    page = DOCS.read_text()
    for name in (*COLUMNS, *LIMITS):
        assert f"`{name}`" in page
    for reader in READERS:
        assert f"`{','.join(reader.header)}`" in page


def test_the_examples_of_the_reference_page_are_equal(tmp_path: Path):
    blocks = DOCS.read_text().split("```")
    examples = {text.split("\n", 1)[0]: text.split("\n", 1)[1] for text in blocks[1::2]}
    for kind in ("csv", "jsonl"):
        (tmp_path / f"example.{kind}").write_text(examples[kind])
    from_csv, from_json = load("example.csv").jobs, load("example.jsonl").jobs
    assert [job.spec for job in from_csv] == [job.spec for job in from_json]
    assert [job.spec.name for job in from_csv] == ["cifar", "bert", "notebook"]
