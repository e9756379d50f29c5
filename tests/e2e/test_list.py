"""`rota list`: running jobs, the queue in the order in which it is served, then ended jobs."""

from __future__ import annotations

import json

from tests.support.daemon_process import DaemonProcess


def test_order_and_number_of_rows(daemon: DaemonProcess):
    ended = [daemon.submit("true", name=f"ended-{n}") for n in range(3)]
    for job in ended:
        daemon.ends(job)
    running = daemon.submit("await never", gpus="4", priority=10)
    daemon.reaches(running, "running")
    held = daemon.submit("true", gpus="4", hold=True)
    low, high, last = (daemon.submit("true", gpus="4", priority=priority) for priority in (0, 5, 0))
    expected = [running, high, low, last, held, *ended[::-1]]

    done = daemon.rota("list", "--all", "--json", "--limit", "8")
    assert [each["id"] for each in json.loads(done.stdout)][:8] == expected
    done = daemon.rota("list", "--all", "--limit", "3")
    rows = done.stdout.splitlines()[2:]
    assert [row.split()[0] for row in rows] == expected[:3]
    total = len(json.loads(daemon.rota("list", "--all", "--json", "--limit", "1000").stdout))
    more = total - 3
    what = f"{more} more jobs are not shown; 'rota list --limit {total}' shows all"
    assert done.stderr == f"rota: {what}\n"
    done = daemon.rota("list", "--all", "--json", "-s", "queued,held")
    assert [each["id"] for each in json.loads(done.stdout)] == [high, low, last, held]
    assert done.stderr == ""
