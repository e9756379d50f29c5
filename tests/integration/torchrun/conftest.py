from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.torchrun.agents import Field
from tests.integration.torchrun.scheduler import Scheduler

Begin = Callable[..., Field]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """A job with these workers, none of which has been started."""
    fields: list[Field] = []

    def begin(*numbers: int) -> Field:
        fields.append(Field(tmp_path, Scheduler(numbers)))
        return fields[-1]

    yield begin
    for field in fields:
        field.clear()
        field.scheduler.stop()
