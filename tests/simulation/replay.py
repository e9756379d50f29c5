"""Runs one seed and prints every transition: `python -m tests.simulation.replay SEED`."""

import sys

from tests.simulation.world import World


def main() -> None:
    world = World(int(sys.argv[1]))
    try:
        world.run()
    finally:
        for row in world.story():
            before = row.before or "-"
            line = f"{row.at_s:10.2f} {row.job_id} #{row.attempt} {before} > {row.after}"
            sys.stdout.write(f"{line}  {row.cause} {row.reason}\n")
        sys.stdout.write(f"{world.n_events} events, {world.n_crashes} crashes\n")


if __name__ == "__main__":
    main()
