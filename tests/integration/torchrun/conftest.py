from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.torchrun.agents import AgentProcesses
from tests.integration.torchrun.scheduler import FakeScheduler

Begin = Callable[..., AgentProcesses]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """A job with these workers, none of which has been started."""
    fields: list[AgentProcesses] = []

    def begin(*numbers: int) -> AgentProcesses:
        fields.append(AgentProcesses(tmp_path, FakeScheduler(numbers)))
        return fields[-1]

    yield begin
    for field in fields:
        field.clear()
        field.scheduler.stop()
