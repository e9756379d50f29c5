"""Runs one seed of the kill tests and prints everything: `python -m tests.e2e.replay SEED`."""

import sys

from tests.support.daemon_process import temporary_daemon
from tests.support.kill_scenario import N_GPUS, KillScenario


def main() -> None:
    with temporary_daemon(gpus=f"{N_GPUS}x16GiB") as daemon:
        scenario = KillScenario(daemon, int(sys.argv[1]))
        try:
            scenario.run()
            for complaint in scenario.complaints():
                sys.stdout.write(f"{complaint}\n")
        finally:
            for line in daemon.heard():
                sys.stdout.write(f"{line.job_id} #{line.attempt} {line.words}\n")
            sys.stdout.write(daemon.log())


if __name__ == "__main__":
    main()
