"""What commands print with `--json` has the form of their schemas, without any further field."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from rota.cli.main import run
from rota.wire.job_changes import ChangedJobs
from tests.golden.conftest import Rota
from tests.golden.fake_client import FakeClient
from tests.tidy.json_schemas import ERROR, SCHEMAS, strict

CASES = {
    "submit": ["--gpus", "1", "--", "true"],
    "list": ["--all"],
    **{key: ["bert"] for key in ("show", "story", "cancel", "hold", "release", "wait", "profile")},
    "resize": ["bert", "2"],
    "edit": ["bert", "--priority", "5"],
    "resubmit": ["bert", "broken"],
    **{key: [] for key in ("status", "top", "nodes list", "policy list", "token list")},
    **{key: ["box"] for key in ("nodes drain", "nodes resume", "nodes lost")},
    **{key: ["tiresias"] for key in ("policy show", "policy set")},
    "token create": [],
    "token revoke": ["55667788"],
    "config show": ["--origin"],
    "history export": [],
    "context list": [],
    "context show": [],
}


@pytest.mark.parametrize("name", CASES)
def test_output_has_the_form_of_its_schema(rota: Rota, name: str) -> None:
    first, *verb = name.split()
    printed = rota(first, *verb, "--json", *CASES[name])
    jsonschema_rs.validate(strict(SCHEMAS[name]), json.loads(printed))


def test_simulate_has_the_form_of_its_schema(rota: Rota) -> None:
    printed = rota("simulate", "synthetic:jobs=5,seed=1", "--cluster", "1x4", "--json")
    jsonschema_rs.validate(strict(SCHEMAS["simulate"]), json.loads(printed))


def test_contexts_have_the_form_of_their_schemas(
    rota: Rota, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for verb, *words in (("add", "lab", "https://lab.example"), ("use", "lab"), ("remove", "lab")):
        printed = rota("context", verb, "--json", *words)
        jsonschema_rs.validate(strict(SCHEMAS[f"context {verb}"]), json.loads(printed))


def test_one_resubmitted_job_is_an_object(rota: Rota) -> None:
    assert json.loads(rota("resubmit", "--json", "bert"))["id"] == "1q1ghcmf"


@pytest.mark.parametrize("words", [["submit", "--dry-run"], ["config", "show"]])
def test_variants_have_the_form_of_the_schema(rota: Rota, words: list[str]) -> None:
    name = " ".join(each for each in words if not each.startswith("--"))
    program = ["--", "true"] if name == "submit" else []
    printed = rota(*words, "--json", *program)
    jsonschema_rs.validate(strict(SCHEMAS[name]), json.loads(printed))


def test_every_line_of_logs_has_the_form_of_the_schema(rota: Rota) -> None:
    for line in rota("logs", "bert", "--json").splitlines():
        jsonschema_rs.validate(strict(SCHEMAS["logs"]), json.loads(line))


def test_an_error_is_one_object_on_stderr(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert run(["store", "check", str(tmp_path / "none.db"), "--json"]) == 2
    printed = capfdbinary.readouterr()
    assert not printed.out
    jsonschema_rs.validate(strict(ERROR), json.loads(printed.err))


def test_a_field_that_is_not_declared_is_found() -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(strict(SCHEMAS["down"]), {"pid": 1, "more": 2})


def test_no_matching_jobs_are_an_empty_list(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FakeClient, "change_jobs", lambda *_: ChangedJobs([]))
    assert json.loads(rota("cancel", "--all", "--json")) == []
