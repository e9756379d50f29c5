"""Runs one seed of the kills and shows all there is: `python -m tests.e2e.replay SEED`."""

import sys

from tests.e2e.house import a_house
from tests.e2e.kills import N_GPUS, Day


def main() -> None:
    with a_house(gpus=f"{N_GPUS}x16GiB") as house:
        day = Day(house, int(sys.argv[1]))
        try:
            day.run()
            for complaint in day.complaints():
                sys.stdout.write(f"{complaint}\n")
        finally:
            for line in house.heard():
                sys.stdout.write(f"{line.job_id} #{line.attempt} {line.words}\n")
            sys.stdout.write(house.log())


if __name__ == "__main__":
    main()
