"""GPU seconds of users, in the store and at the current time."""

from rota.core.model.commands import Command
from rota.core.model.effects import Effects
from rota.daemon.runtime.usage import UsageAccounting
from rota.store.interface import Batch
from rota.store.records import UsageRecord
from tests.support.builders import Lab, cluster, job


class Box(Lab):
    """Writes accounts with what they count, as the shell does."""

    accounts = UsageAccounting()

    def _written(self, effects: Effects) -> list[Command]:
        rows = self.accounts.count(effects.jobs.values(), now=effects.now)
        self.store.write(Batch(rows=rows)).result()
        return super()._written(effects)

    def used(self) -> dict[str, float]:
        rows = self.accounts.as_of(self.kernel.jobs.values(), self.now)
        return {row.user: row.gpu_s for row in rows}

    def on_disk(self) -> dict[str, float]:
        return {row.user: row.gpu_s for row in self.store.rows(UsageRecord)}

    def crash(self) -> None:
        self.accounts = UsageAccounting(self.store.rows(UsageRecord), self.store.load().jobs)
        self.recover()


def test_time_is_counted_once_through_attempts_ends_and_crashes() -> None:
    box = Box(cluster("1x4"))
    box.accounts = UsageAccounting()
    box.run(job("a", 2, user="ada"), job("b", 1, user="ben"), job("c", 1, user="ada"))
    box.wait(100)
    assert (box.used(), box.on_disk()) == ({"ada": 300.0, "ben": 100.0}, {})
    box.exited("c")
    assert (box.used(), box.on_disk()) == ({"ada": 300.0, "ben": 100.0}, {"ada": 100.0})
    box.crash()
    box.wait(50)
    assert box.used() == {"ada": 400.0, "ben": 150.0}
    box.hold("a")
    box.exited("a", 75)
    box.release("a")
    box.round()
    box.started("a")
    box.wait(10)
    box.exited("a")
    box.exited("b")
    assert box.used() == box.on_disk() == {"ada": 420.0, "ben": 160.0}


def test_projects_are_counted_separately() -> None:
    box = Box(cluster("1x2"))
    box.accounts = UsageAccounting()
    box.run(job("a", 1, user="ada", project="vision"), job("b", 1, user="ada", project="speech"))
    box.wait(7)
    box.exited("a")
    box.exited("b")
    assert [(row.project, row.user, row.gpu_s) for row in box.store.rows(UsageRecord)] == [
        ("speech", "ada", 7.0),
        ("vision", "ada", 7.0),
    ]
