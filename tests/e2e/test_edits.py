"""`rota edit` changes jobs that wait or run."""

import json

from tests.support.daemon_process import DaemonProcess


def test_queued_job_is_edited_and_its_history_says_so(daemon: DaemonProcess) -> None:
    job = daemon.submit("true", name="old", hold=True)
    words = "--name new --priority 5 --time-limit 2h --retries 3 --retry-on 75 --memory 1GiB"
    done = daemon.rota("edit", "old", *words.split())
    assert done.returncode == 0, done.stderr
    assert "new" in done.stdout
    shown = json.loads(daemon.rota("show", "new", "--json").stdout)
    assert (shown["id"], shown["priority"], shown["retries_left"]) == (job, 5, 3)
    request = shown["request"]
    assert (request["time_limit"], request["retry_on"], request["memory"]) == ("2h", [75], "1GiB")
    assert "priority set to 5 (was 0)" in daemon.rota("story", "new").stdout
    copy = daemon.rota("resubmit", "new").stdout.strip()
    assert daemon.client.show(copy).job.priority == 5
    assert daemon.client.show(copy).request.time_limit == "2h"


def test_shorter_time_limit_stops_a_running_job(daemon: DaemonProcess) -> None:
    job = daemon.submit("say came; await never", time_limit="1h")
    daemon.says(job, "came")
    assert daemon.rota("edit", job, "--time-limit", "0.1s").returncode == 0
    assert daemon.ends(job).reason.startswith("reached its time limit of 0.1 s")


def test_running_job_refuses_other_resources(daemon: DaemonProcess) -> None:
    job = daemon.submit("say came; await never")
    daemon.says(job, "came")
    refused = daemon.rota("edit", job, "--memory", "1GiB", "--priority", "1")
    assert refused.returncode == 2
    assert "this changes only while a job is queued" in refused.stderr
    assert daemon.client.show(job).job.priority == 0


def test_array_is_edited_as_a_whole(daemon: DaemonProcess) -> None:
    daemon.submit("true", name="sweep", array="3", hold=True)
    assert daemon.rota("edit", "sweep", "--name", "tuned", "--priority", "2").returncode == 0
    found = daemon.client.named("tuned")
    assert [(each.name, each.priority) for each in found] == [(f"tuned[{n}]", 2) for n in range(3)]


def test_edit_survives_a_restart(own_daemon: DaemonProcess) -> None:
    own_daemon.up()
    job = own_daemon.submit("say came; await on")
    own_daemon.says(job, "came")
    assert own_daemon.rota("edit", job, "--priority", "7", "--time-limit", "3h").returncode == 0
    own_daemon.kill()
    own_daemon.up()
    shown = own_daemon.client.show(job)
    assert (shown.job.priority, shown.request.time_limit) == (7, "3h")
    own_daemon.allow("on")
    assert own_daemon.ends(job).state == "succeeded"


def test_edit_without_a_flag_says_what_it_needs(daemon: DaemonProcess) -> None:
    job = daemon.submit("true", hold=True)
    done = daemon.rota("edit", job)
    assert done.returncode == 2
    assert "give at least one of --name" in done.stderr
