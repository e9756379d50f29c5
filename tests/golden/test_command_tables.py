"""Text output of all commands with a daemon."""

# ruff: noqa: E501 - a table is as wide as it is
from __future__ import annotations

import json

from inline_snapshot import snapshot

from tests.golden.conftest import Rota


def test_list_of_own_jobs(rota: Rota):
    assert rota("list") == snapshot("""\
id         name     user     state          gpus     age   running   progress   remaining   finish          reason
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
1q1ghcmf   bert     user-1   running   2 of 1..4   2h03m     1h02m        45%      50m00s   ~15:03 ±6 min
1q1gxzs9   broken   user-1   failed          0.5   2d07h    16m30s          -           -   -               exit code 3
""")


def test_list_of_all_users(rota: Rota):
    assert rota("list", "--all") == snapshot("""\
id         name         user     state          gpus     age   running   progress   remaining   finish               reason
─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
1q1gtmja   größe-漢字   user-2   queued            8     42s         -          -      11h06m   ~Sep 22 01:20 ±3 h   it waits for 8 GPUs of type A100: 2 are free, and 6 more by 14:05 when bert ends
1q1ghcmf   bert         user-1   running   2 of 1..4   2h03m     1h02m        45%      50m00s   ~15:03 ±6 min
1q1gxzs9   broken       user-1   failed          0.5   2d07h    16m30s          -           -   -                    exit code 3
""")


def test_list_in_a_state(rota: Rota):
    assert rota("list", "--all", "--state", "queued") == snapshot("""\
id         name         user     state    gpus   age   running   remaining   finish               reason
──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
1q1gtmja   größe-漢字   user-2   queued      8   42s         -      11h06m   ~Sep 22 01:20 ±3 h   it waits for 8 GPUs of type A100: 2 are free, and 6 more by 14:05 when bert ends
""")


def test_show(rota: Rota):
    assert rota("show", "bert") == snapshot("""\
id            1q1ghcmf
name          bert
user          user-1
project       vision
state         running
hint          worker 1 holds the others up: look at its GPU, its node and its data
command       python train.py --lr 1e-3 '--name=a b' --api-key k123456
workdir       /home/user-1/bert
env           HF_TOKEN, THREADS, DB
gpus          2 of 1..4
cpus          2
memory        32GiB
nodes         box
priority      5
mode          fixed
after         1q1gaaaa
submitted     2026-09-21 12:10:16
started       2026-09-21 12:16:40
running       1h02m
queued        6m24s
gpu_s         7451 (2h04m)
time_limit    2d
progress      45%, 4.5 of 10 epochs
epochs_saved  4 epochs
remaining     50m00s ±6 min
finish        ~15:03 ±6 min
lost          12m34s of work
metrics       loss 0.0667, accuracy 0.87
stragglers    worker 1 on box, 1.5 times as slow as the others

attempt   worker   node   gpus   started               ended                 exit_code   outcome     reason
─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      1        0   box    0      2026-09-21 12:16:40   2026-09-21 12:33:20         143   preempted   a job of higher priority needed its GPUs
      1        1   box    1      2026-09-21 12:25:00   2026-09-21 12:33:19           0   preempted   a job of higher priority needed its GPUs
      2        0   box    0,1    2026-09-21 13:27:55   -                             -
""")


def test_show_as_a_job_file(rota: Rota):
    assert rota("show", "--file", "bert") == snapshot("""\
command:
- python
- train.py
- --lr
- 1e-3
- --name=a b
- --api-key
- k123456
name: bert
project: vision
gpus: 1..4
cpus: 2.0
memory: 32GiB
priority: 5
epochs: 10
env:
  THREADS: '4'
  DB: postgres://user-1:hunter22@db/x
workdir: /home/user-1/bert
time_limit: 2d
umask: 0027
""")


def test_show_of_a_known_failure(rota: Rota):
    assert rota("show", "broken") == snapshot("""\
id         1q1gxzs9
name       broken
user       user-1
state      failed
reason     exit code 1: the GPU ran out of memory (OOM)
hint       a smaller batch, or more memory: `--gpu-memory`, `--gpu-type`
command    python train.py
gpus       0.5
priority   0
mode       fixed
submitted  2026-09-19 06:40:00
started    2026-09-19 06:40:10
ended      2026-09-19 06:56:40
running    16m30s
queued     10s
gpu_s      495 (8m15s)

attempt   worker   node   gpus   started               ended                 exit_code   outcome   reason
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      1        0   box    3      2026-09-19 06:40:10   2026-09-19 06:56:40           1   failed    exit code 1: the GPU ran out of memory (OOM)
""")


def test_a_report_of_a_known_failure_has_the_hint(rota: Rota):
    report = rota("report", "broken", "--output", "-")
    _, job, *_ = report.split("## ")
    assert job == snapshot("""\
Job

~~~~
id         1q1gxzs9
name       broken
user       user-1
state      failed
reason     exit code 1: the GPU ran out of memory (OOM)
hint       a smaller batch, or more memory: `--gpu-memory`, `--gpu-type`
command    python train.py
gpus       0.5
priority   0
mode       fixed
submitted  2026-09-19 06:40:00
started    2026-09-19 06:40:10
ended      2026-09-19 06:56:40
running    16m30s
queued     10s
gpu_s      495 (8m15s)

attempt   worker   node   gpus   started               ended                 exit_code   outcome   reason
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      1        0   box    3      2026-09-19 06:40:10   2026-09-19 06:56:40           1   failed    exit code 1: the GPU ran out of memory (OOM)
~~~~

""")


def test_story(rota: Rota):
    assert rota("story", "bert") == snapshot("""\
at                    attempt   before     after      reason
───────────────────────────────────────────────────────────────────────────────────────────
2026-09-21 12:10:16         -   -          queued     submitted (by user-1)
2026-09-21 12:16:40         1   queued     starting   scheduled
2026-09-21 12:16:41         1   starting   running    all workers started
2026-09-21 12:33:20         1   running    queued     preempted by a job of higher priority
""")


def test_cancel(rota: Rota):
    assert rota("cancel", "bert") == snapshot("""\
id         name   user     state          gpus     age   running   progress   remaining   finish          reason
────────────────────────────────────────────────────────────────────────────────────────────────────────────────
1q1ghcmf   bert   user-1   running   2 of 1..4   2h03m     1h02m        45%      50m00s   ~15:03 ±6 min
""")


def test_resize(rota: Rota):
    assert rota("resize", "bert", "2") == snapshot("""\
id         name   user     state          gpus     age   running   progress   remaining   finish          reason
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
1q1ghcmf   bert   user-1   running   2 of 1..4   2h03m     1h02m        45%      50m00s   ~15:03 ±6 min   pinned to 2 GPUs by its owner
""")


def test_status(rota: Rota):
    assert rota("status") == snapshot("""\
rota 0.1.0 is up for 1d01h (process 4242)
GPUs     2 of 3 held, 1 free
jobs     1 queued, 1 running
policy   tiresias:knob=4
engine   local
socket   /var/lib/rota/rota.sock
address  127.0.0.1:8800
""")


def test_nodes_list(rota: Rota):
    assert rota("nodes", "list") == snapshot("""\
id        index   type             memory   utilisation   jobs       state
──────────────────────────────────────────────────────────────────────────────────────────────────
box           0   A100   60 GiB of 80 GiB           97%   1q1ghcmf   ok
box           1   A100   61 GiB of 80 GiB           50%   1q1ghcmf   ok
box           2   A100             80 GiB             -   -          ok
box           3   A100             80 GiB             -   -          2 uncorrectable memory errors
old-box       -   -                     -             -   -          draining
""")


def test_top(rota: Rota):
    assert rota("top") == snapshot("""\
rota 0.1.0, up 1d01h; tiresias:knob=4; 2 of 3 GPUs held; jobs: 1 queued, 1 running
box: 2 of 64 CPUs and 32 GiB of 256 GiB requested
old-box: 0 of 8 CPUs and 0 B of 16 GiB requested, draining

id        index   type             memory   utilisation   jobs            state
───────────────────────────────────────────────────────────────────────────────────────────────────────
box           0   A100   60 GiB of 80 GiB           97%   bert (user-1)   ok
box           1   A100   61 GiB of 80 GiB           50%   bert (user-1)   ok
box           2   A100             80 GiB             -   -               ok
box           3   A100             80 GiB             -   -               2 uncorrectable memory errors
old-box       -   -                     -             -   -               draining

id         name   user     state          gpus   running   progress   remaining   finish          reason
────────────────────────────────────────────────────────────────────────────────────────────────────────
1q1ghcmf   bert   user-1   running   2 of 1..4     1h02m        45%      50m00s   ~15:03 ±6 min
""")


def test_token_list(rota: Rota):
    assert rota("token", "list") == snapshot("""\
id         user     scope       created               expires               state
───────────────────────────────────────────────────────────────────────────────────
0a1b2c3d   user-1   user        2026-09-20 14:13:20   2026-09-22 14:13:20   valid
11223344   user-1   read_only   2026-09-20 14:13:20   2026-09-21 14:12:20   expired
55667788   user-2   user        2026-09-20 14:13:20   -                     revoked
""")


def test_token_revoke(rota: Rota):
    assert rota("token", "revoke", "55667788") == snapshot("""\
id         user     scope   created               expires   state
───────────────────────────────────────────────────────────────────
55667788   user-2   user    2026-09-20 14:13:20   -         revoked
""")


def test_submit(rota: Rota):
    assert rota("submit", "--gpus", "1", "--", "true") == snapshot("1q1h0000\n")


def test_resubmit(rota: Rota):
    assert rota("resubmit", "bert", "broken") == snapshot("""\
1q1h0000
1q1h0000
""")


def test_policy_set(rota: Rota):
    assert rota("policy", "set", "fifo") == snapshot("policy set to fifo\n")


def test_token_create(rota: Rota):
    assert rota("token", "create") == snapshot("rota_secret\n")


def test_logs(rota: Rota):
    assert rota("logs", "bert") == snapshot("""\
[0] epoch 1
[0] epoch 2
[0] end
""")


def test_logs_with_times(rota: Rota):
    assert rota("logs", "--timestamps", "bert") == snapshot("""\
2026-09-21 14:13:20.000 [0] epoch 1
2026-09-21 14:13:21.000 [0] epoch 2
                        [0] end
""")


def test_report(rota: Rota):
    assert rota("report", "bert", "--output", "-") == snapshot("""\
# rota report: job 1q1ghcmf (bert)

Written at 2026-09-21 14:13:20. Known kinds of secrets are removed.

## Job

~~~~
id            1q1ghcmf
name          bert
user          user-1
project       vision
state         running
hint          worker 1 holds the others up: look at its GPU, its node and its data
command       python train.py --lr 1e-3 '--name=a b' --api-key [removed]
workdir       /home/user-1/bert
env           HF_TOKEN, THREADS, DB
gpus          2 of 1..4
cpus          2
memory        32GiB
nodes         box
priority      5
mode          fixed
after         1q1gaaaa
submitted     2026-09-21 12:10:16
started       2026-09-21 12:16:40
running       1h02m
queued        6m24s
gpu_s         7451 (2h04m)
time_limit    2d
progress      45%, 4.5 of 10 epochs
epochs_saved  4 epochs
remaining     50m00s ±6 min
finish        ~15:03 ±6 min
lost          12m34s of work
metrics       loss 0.0667, accuracy 0.87
stragglers    worker 1 on box, 1.5 times as slow as the others

attempt   worker   node   gpus   started               ended                 exit_code   outcome     reason
─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
      1        0   box    0      2026-09-21 12:16:40   2026-09-21 12:33:20         143   preempted   a job of higher priority needed its GPUs
      1        1   box    1      2026-09-21 12:25:00   2026-09-21 12:33:19           0   preempted   a job of higher priority needed its GPUs
      2        0   box    0,1    2026-09-21 13:27:55   -                             -
~~~~

## Job file, with defaults

~~~~
command:
- python
- train.py
- --lr
- 1e-3
- --name=a b
- --api-key
- '[removed]'
name: bert
project: vision
gpus: 1..4
cpus: 2.0
memory: 32GiB
priority: 5
epochs: 10
env:
  HF_TOKEN: [removed]
  THREADS: '4'
  DB: '[removed]'
workdir: /home/user-1/bert
time_limit: 2d
umask: 0027
~~~~

## History

~~~~
at                    attempt   before     after      reason
───────────────────────────────────────────────────────────────────────────────────────────
2026-09-21 12:10:16         -   -          queued     submitted (by user-1)
2026-09-21 12:16:40         1   queued     starting   scheduled
2026-09-21 12:16:41         1   starting   running    all workers started
2026-09-21 12:33:20         1   running    queued     preempted by a job of higher priority
~~~~

## Last output of attempt 1, worker 0

~~~~
epoch 1
logged in with [removed]
tokens: 12345
used [removed]
~~~~

## Last output of attempt 1, worker 1

~~~~
epoch 1
logged in with [removed]
tokens: 12345
used [removed]
~~~~

## Last output of attempt 2, worker 0

~~~~
epoch 1
logged in with [removed]
tokens: 12345
used [removed]
~~~~

## Versions

~~~~
name              value
─────────────────────────────────────────
rota              0.1.0
python            3.11.0
kernel            Linux 6.1.0
daemon version    0.1.0
daemon engine     local
daemon policy     tiresias:knob=4
daemon pid        4242
daemon socket     /var/lib/rota/rota.sock
daemon address    127.0.0.1:8800
daemon up since   2026-09-20 13:13:20
~~~~

## Nodes

~~~~
id        index   type             memory   utilisation   jobs       state
──────────────────────────────────────────────────────────────────────────────────────────────────
box           0   A100   60 GiB of 80 GiB           97%   1q1ghcmf   ok
box           1   A100   61 GiB of 80 GiB           50%   1q1ghcmf   ok
box           2   A100             80 GiB             -   -          ok
box           3   A100             80 GiB             -   -          2 uncorrectable memory errors
old-box       -   -                     -             -   -          draining
~~~~
""")


def test_policy_in_use(rota: Rota):
    assert rota("policy", "show") == snapshot("""\
tiresias:knob=4: Runs jobs at their requested size, those that have used little GPU time first.

A job whose run used `threshold_gpu_s` GPU-seconds moves to the second queue; a job that waited
`knob` times as long as its last run moves back to the first. Tiresias-L, the discretised
two-dimensional least-attained-service policy of Gu et al., "Tiresias: A GPU Cluster Manager for
Distributed Deep Learning", NSDI 2019; the defaults are Voda's.

Parameters:
  threshold_gpu_s=3600 (a number above 0)
  knob=8 (a number above 0)
""")


def test_show_hides_values_of_variables_and_never_shows_secrets(rota: Rota):
    [hidden] = [line for line in rota("show", "bert").splitlines() if line.startswith("env ")]
    [named] = [line for line in rota("show", "bert", "--env").splitlines() if line[:4] == "env "]
    assert hidden.split(maxsplit=1)[1] == "HF_TOKEN, THREADS, DB"
    assert named.split(maxsplit=1)[1] == snapshot("'HF_TOKEN=[removed]' THREADS=4 'DB=[removed]'")
    as_json = json.loads(rota("show", "bert", "--env", "--json"))
    assert as_json["request"]["env"]["THREADS"] == "4"
    assert "hunter22" not in str(as_json)
