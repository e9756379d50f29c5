"""The model as a script uses it, in a process group of one."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from rota_trainer.elastic.model import ElasticModel  # noqa: E402


@pytest.fixture
def model() -> Iterator[ElasticModel]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    found = ElasticModel(torch.nn.Linear(2, 1), {})
    found.wrap_ddp(torch.device("cpu"))
    yield found
    found.unwrap_ddp()
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("weight", "loss", "gradient"), [(0.25, 1.0, 0.5), (0.0, 1.0, 0.0), (0.0, float("inf"), 0.0)]
)
def test_gradients_are_weighted(
    model: ElasticModel, weight: float, loss: float, gradient: float
) -> None:
    model.weight = weight
    (model(torch.full((1, 2), 2.0)) * loss).sum().backward()
    found = next(model.module.parameters()).grad
    assert found is not None
    assert found.tolist() == [[gradient, gradient]]
