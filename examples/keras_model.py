"""Trains a small model with Keras 3 on torch and rota's callback.

python examples/keras_model.py --epochs 5
rota submit --gpus 1 --epochs 5 -- python examples/keras_model.py --epochs 5
"""

import argparse
import os
import time

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import torch

from rota_trainer.keras import RotaCallback


def main() -> None:
    options = parse()
    keras.utils.set_random_seed(options.seed)
    torch.set_num_threads(1)
    points = np.random.default_rng(1).normal(size=(options.points, 2)).astype("float32")
    is_inside = (np.linalg.norm(points, axis=1) < 1).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), loss="binary_crossentropy", metrics=["accuracy"])
    rota = RotaCallback()
    model.fit(
        points,
        is_inside,
        epochs=options.epochs,
        initial_epoch=rota.restore(model),
        callbacks=[Pause(options.seconds_per_epoch), rota],
        verbose=0,  # pyright: ignore[reportArgumentType]
    )
    if options.weights:
        np.savez(options.weights, *model.get_weights())


class Pause(keras.callbacks.Callback):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        time.sleep(self._seconds)
        print(f"epoch {epoch + 1} is done {logs}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--seconds-per-epoch", type=float, default=0.0, help="added, to see it run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", default="", help="file for the weights at the end (.npz)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
