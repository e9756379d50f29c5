"""`rota config show` tells what the running daemon uses, not what the files say by now."""

from __future__ import annotations

import json

from tests.support.daemon_process import DaemonProcess, temporary_daemon


def shown(daemon: DaemonProcess, *flags: str) -> dict[str, tuple[object, str]]:
    done = daemon.rota("config", "show", "--origin", "--json", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    return {each["name"]: (each["value"], each["origin"]) for each in json.loads(done.stdout)}


def test_flags_and_files_of_the_start_are_shown() -> None:
    with temporary_daemon(gpus="") as daemon:
        file = daemon.state / "config.toml"
        file.write_text('virtual_gpus = "1x8GiB"\nmin_runtime = "12h"\ndefaults.env.A = "1"\n')
        daemon.up("--virtual-gpus", "2x16GiB")
        file.write_text('min_runtime = "90s"\n')
        found = shown(daemon)
        assert found["home"] == (str(daemon.state), "ROTA_HOME")
        assert found["virtual_gpus"] == ("2x16GiB", "--virtual-gpus")
        assert found["min_runtime"] == (43200.0, str(file))
        assert found["defaults.env.A"] == ("1", str(file))
        assert found["policy"] == ("elastic-fifo", "default")
        table = [line.split() for line in daemon.rota("config", "show").stdout.splitlines()]
        assert ["min_runtime", "12h"] in table
        daemon.client.set_policy("fifo")
        assert shown(daemon)["policy"] == ("fifo", str(daemon.state / "policy"))
        assert "submit.priority" in shown(daemon, "--client")
        daemon.down()
        done = daemon.rota("config", "show")
        assert "no daemon" in done.stderr
        assert ["min_runtime", "90s"] in [line.split() for line in done.stdout.splitlines()]
