"""Trains a small transformer to predict the next letter of sums such as `27+58=85`.

python examples/transformer.py --epochs 10
rota submit --gpus 1 --epochs 10 -- python examples/transformer.py --epochs 10
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rota_trainer as trainer
from rota_trainer.torch import State

LETTERS = "0123456789+= "
LENGTH = 8


def main() -> None:
    options = parse()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    run = trainer.start()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(make_sums(options.sums)), batch_size=32, shuffle=True)
    model = NextLetter(options.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    n_steps = options.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=n_steps)
    state = State(run, model=model, optimizer=optimizer, scheduler=scheduler)
    run.restore(state.load)

    for epoch in run.epochs(options.epochs, save=state.save):
        for (sums,) in run.steps(loader, save=state.save):
            letters = sums.to(device)
            guess = model(letters[:, :-1])
            loss = nn.functional.cross_entropy(guess.flatten(0, 1), letters[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.report(loss=loss.item(), learning_rate=scheduler.get_last_lr()[0])
            time.sleep(options.seconds_per_epoch / len(loader))
        print(f"epoch {epoch + 1} is done", flush=True)

    if options.weights:
        torch.save(model.state_dict(), options.weights)


class NextLetter(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.places = nn.Parameter(torch.zeros(LENGTH - 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, len(LETTERS))

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        n_letters = letters.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(n_letters, device=letters.device)
        seen = self.letters(letters) + self.places[:n_letters]
        return self.out(self.layers(seen, mask=mask, is_causal=True))


def make_sums(n_sums: int) -> torch.Tensor:
    chance = random.Random(1)
    rows = []
    for _ in range(n_sums):
        one, other = chance.randrange(10, 50), chance.randrange(10, 50)
        text = f"{one}+{other}={one + other}"
        rows.append([LETTERS.index(letter) for letter in text.ljust(LENGTH)])
    return torch.tensor(rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--sums", type=int, default=512)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--seconds-per-epoch", type=float, default=0.0, help="added, to see it run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", default="", help="file for the weights at the end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
