"""Trains a regression by gradient descent with numpy, for machines without torch.

python examples/numpy_model.py --epochs 10
rota submit --epochs 10 -- python examples/numpy_model.py --epochs 10
"""

import argparse
import time
from pathlib import Path

import numpy as np

import rota_trainer as trainer


def main() -> None:
    options = parse()
    run = trainer.start()
    chance = np.random.default_rng(options.seed)
    points = chance.normal(size=(options.points, 8))
    wanted = points @ np.arange(1.0, 9.0) + 0.1 * chance.normal(size=options.points)
    model = {"weights": np.zeros(8), "speed": np.zeros(8)}

    def save(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, weights=model["weights"], speed=model["speed"])

    def load(path: Path) -> None:
        with np.load(path) as saved:
            model.update({name: saved[name] for name in model})

    run.restore(load)
    for epoch in run.epochs(options.epochs, save=save):
        # The epoch number seeds the order, so the order is the same after a restart.
        order = np.random.default_rng([options.seed, epoch]).permutation(options.points)
        batches = np.array_split(order, max(1, options.points // 32))
        for batch in run.steps(batches, save=save):
            error = points[batch] @ model["weights"] - wanted[batch]
            slope = points[batch].T @ error / len(batch)
            model["speed"] = 0.9 * model["speed"] - 0.01 * slope
            model["weights"] = model["weights"] + model["speed"]
            time.sleep(options.seconds_per_epoch / len(batches))
        loss = float(np.mean((points @ model["weights"] - wanted) ** 2))
        run.report(loss=loss)
        print(f"epoch {epoch + 1}: loss {loss:.4f}", flush=True)

    if options.weights:
        np.save(options.weights, model["weights"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--seconds-per-epoch", type=float, default=0.0, help="added, to see it run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", default="", help="file for the weights at the end (.npy)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
