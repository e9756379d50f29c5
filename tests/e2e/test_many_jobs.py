"""Words that name jobs, and requests about many jobs."""

import json

import pytest

from rota.client.http import AnswerError
from rota.errors import UserError
from rota.wire.job_changes import JobSelection
from rota.wire.jobs import FINAL_STATES
from tests.support.daemon_process import DaemonProcess, wait_until


def test_name_of_an_array_comes_before_the_end_of_an_id(daemon: DaemonProcess) -> None:
    other = daemon.submit("true", hold=True)
    end = other[-3:]
    members = daemon.client.submit_many([daemon.request("true", name=end, array="0-4", hold=True)])
    assert [each.id for each in daemon.client.named(end)] == members
    done = daemon.rota("cancel", end, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [each["id"] for each in json.loads(done.stdout)] == members
    assert daemon.state_of(other) == "held"


def test_part_of_an_id_is_confirmed_before_a_change(daemon: DaemonProcess) -> None:
    job = daemon.submit("true", name="solo", hold=True)
    assert daemon.client.show(job[:7]).job.id == daemon.client.show(job[-6:]).job.id == job
    for part in (job[:7], job[-6:]):
        done = daemon.rota("cancel", part)
        assert done.returncode == 2
        assert "of the id of job" in done.stderr
        assert "--yes" in done.stderr
        with pytest.raises(AnswerError, match="of the id of job"):
            daemon.client.cancel(part)
    assert daemon.state_of(job) == "held"
    assert daemon.rota("cancel", "--yes", job[:7]).returncode == 0
    assert daemon.state_of(job) == "cancelled"


def test_three_characters_are_no_beginning_of_an_id(daemon: DaemonProcess) -> None:
    job = daemon.submit("true", hold=True)
    with pytest.raises(AnswerError, match="no job"):
        daemon.client.show(job[:3])


def test_empty_word_is_refused(daemon: DaemonProcess) -> None:
    for action in ("show", "cancel", "logs", "wait"):
        done = daemon.rota(action, "")
        assert done.returncode == 2
        assert "is empty" in done.stderr
    with pytest.raises(UserError, match="is empty"):
        daemon.client.show("")


def test_no_job_of_a_request_starts_while_the_others_are_cancelled(daemon: DaemonProcess) -> None:
    """The first job holds all GPUs; each cancelled job of the array would let another one start."""
    first = daemon.submit("say start; await never", name="oldrun", gpus="4")
    daemon.says(first, "start")
    members = daemon.client.submit_many(
        [daemon.request("say start; await never", name="sweep", array="150")]
    )
    done = daemon.rota("cancel", "oldrun", "sweep")
    assert (done.returncode, done.stdout) == (0, "cancelled 151 jobs\n")
    daemon.ends(first)
    assert {each.state for each in daemon.client.named("sweep")} == {"cancelled"}
    assert {each.attempt for each in daemon.client.named("sweep")} == {0}
    assert daemon.heard(members[0]) == []


def test_ended_members_are_no_error(daemon: DaemonProcess) -> None:
    members = daemon.client.submit_many(
        [daemon.request("true", name="sweep", array="3", hold=True)]
    )
    daemon.client.cancel(members[0])
    for verb, state in (("release", "queued"), ("hold", "held"), ("cancel", "cancelled")):
        if verb == "release":
            continue
        changed = daemon.client.change_jobs(verb, JobSelection(jobs=["sweep"]))
        assert [each.state for each in changed.jobs] == [state] * 2
        assert (changed.n_ended, changed.problems) == (1, [])
    again = daemon.rota("cancel", "sweep", members[0])
    assert (again.returncode, again.stderr) == (0, "rota: 3 jobs had ended before\n")


def test_dependent_jobs_are_cancelled_and_do_not_fail(daemon: DaemonProcess) -> None:
    first = daemon.submit("true", name="first", hold=True)
    second = daemon.submit("true", name="second", after=["first"])
    daemon.client.change_jobs("cancel", JobSelection(jobs=[first, second]))
    assert daemon.state_of(second) == "cancelled"


def test_filters_select_jobs_after_a_confirmation(daemon: DaemonProcess) -> None:
    sweep = [daemon.submit("true", name=f"sweep-{n}", hold=True) for n in range(3)]
    other = daemon.submit("true", name="other", hold=True)
    asked = daemon.rota("cancel", "--name", "sweep-*")
    assert asked.returncode == 2
    assert "cancel 3 jobs" in asked.stderr
    assert "(3 held)" in asked.stderr
    assert {daemon.state_of(each) for each in sweep} == {"held"}
    done = daemon.rota("cancel", "--name", "sweep-*", "--state", "held", "--yes", "--json")
    assert {each["id"] for each in json.loads(done.stdout)} == set(sweep)
    assert daemon.state_of(other) == "held"
    assert daemon.rota("cancel", "--all", "--yes").returncode == 0
    assert daemon.state_of(other) == "cancelled"
    assert daemon.rota("cancel").returncode == 2
    assert daemon.rota("cancel", "--state", "failed", "--yes").returncode == 2


def test_array_of_three_thousand_is_shown_and_cancelled_by_its_name(daemon: DaemonProcess) -> None:
    daemon.submit("true", name="huge", array="3000", hold=True)
    shown = daemon.rota("show", "huge", "--json")
    assert len(json.loads(shown.stdout)) == 3000
    assert daemon.rota("cancel", "huge").stdout == "cancelled 3000 jobs\n"
    assert {each.state for each in daemon.client.named("huge")} == {"cancelled"}


def test_resubmit_keeps_dependencies_and_copies_arrays(daemon: DaemonProcess) -> None:
    daemon.submit("true", name="first", hold=True)
    second = daemon.submit("true", name="second", after=["first"], retries=2, priority=-5)
    copy = daemon.client.show(daemon.client.resubmit(second))
    assert copy.after == daemon.client.show(second).after
    assert (copy.request.retries, copy.job.priority) == (2, -5)
    daemon.submit("true", name="grid", array="2,5,7%2", hold=True)
    ids = daemon.rota("resubmit", "grid").stdout.split()
    assert [daemon.client.show(each).array_index for each in ids] == [2, 5, 7]
    assert [each.id for each in daemon.client.named("grid")] == ids


def test_job_waits_for_an_array(daemon: DaemonProcess) -> None:
    members = daemon.client.submit_many(
        [daemon.request('await go; exit "$ROTA_ARRAY_INDEX"', name="parts", array="0-1", gpus="0")]
    )
    after = {
        "any": daemon.submit("true", after_any=["parts"], gpus="0"),
        "failed": daemon.submit("true", after_failed=["parts"], gpus="0"),
        "all": daemon.submit("true", after=["parts"], gpus="0"),
        "not needed": daemon.submit("true", after_failed=[members[0]], gpus="0"),
    }
    daemon.allow("go")
    ended = {name: daemon.ends(job).state for name, job in after.items()}
    assert ended == {
        "any": "succeeded",
        "failed": "succeeded",
        "all": "failed",
        "not needed": "cancelled",
    }


def test_array_runs_at_most_so_many_jobs_at_once(daemon: DaemonProcess) -> None:
    script = 'echo + >> "$HERE/n"; await "go"; echo - >> "$HERE/n"'
    members = daemon.client.submit_many(
        [daemon.request(script, name="two", array="0-5%2", gpus="0")]
    )
    wait_until(lambda: sum(daemon.state_of(each) == "running" for each in members) == 2, "two run")
    waiting = next(each for each in daemon.client.named("two") if each.state == "queued")
    assert waiting.reason == "waits for its array, of which at most 2 jobs run at once"
    daemon.allow("go")
    wait_until(lambda: all(daemon.state_of(each) in FINAL_STATES for each in members), "the end")
    signs = (daemon.place / "n").read_text().split()
    counts = [signs[:n].count("+") - signs[:n].count("-") for n in range(len(signs) + 1)]
    assert max(counts) == 2
