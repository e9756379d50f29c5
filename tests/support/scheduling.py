"""Deals tests out to the processes of pytest-xdist, those of the test cluster from the beginning.

Tests of the cluster mostly wait, and the other tests mostly compute. Half of the processes take
tests of the cluster first, a module at a time, because its tests share fixtures that take seconds
to make. The other processes take the other tests in their order. A process whose own tests are
used up helps with the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile

from xdist.scheduler.load import LoadScheduling
from xdist.workermanage import WorkerController

CLUSTER_FOLDER = "tests/kubernetes/"
CLUSTER_ENGINE = "[kubernetes-"
"""In the names of tests that run on every engine."""


def needs_cluster(test: str) -> bool:
    return test.startswith(CLUSTER_FOLDER) or CLUSTER_ENGINE in test


def module_of(test: str) -> str:
    return test.partition("::")[0]


def next_cluster_test(tests: Sequence[str], *, last: str | None, busy: Collection[str]) -> int:
    """The position of the test for a process that ran the test `last`, where other processes are
    busy with the modules `busy`: of its own module, else of a module that no process has, else the
    first."""
    own = module_of(last) if last else None
    modules = [module_of(test) for test in tests]
    if own in modules:
        return modules.index(own)
    return next((n for n, module in enumerate(modules) if module not in busy), 0)


class ClusterScheduling(LoadScheduling):
    """Expects the tests of the cluster at the end of the collection."""

    def _send_tests(self, node: WorkerController, num: int) -> None:
        for _ in range(min(num, len(self.pending))):
            index = self.pending.pop(self._choose(node))
            self.node2pending[node].append(index)
            node.send_runtest_some([index])

    def _choose(self, node: WorkerController) -> int:
        """The position in `pending` of the next test for this process."""
        found = self._pending_cluster_tests()
        n_others = len(self.pending) - len(found)
        is_cluster_first = self.nodes.index(node) < len(self.nodes) // 2
        if not found or (n_others and not is_cluster_first):
            return 0
        last = {each: self._last_test(each) for each in self.nodes}
        busy = {module_of(test) for each, test in last.items() if test and each is not node}
        return n_others + next_cluster_test(found, last=last[node], busy=busy)

    def _pending_cluster_tests(self) -> list[str]:
        assert self.collection is not None
        tests = (self.collection[index] for index in reversed(self.pending))
        return list(takewhile(needs_cluster, tests))[::-1]

    def _last_test(self, node: WorkerController) -> str | None:
        assert self.collection is not None
        sent = self.node2pending[node]
        return self.collection[sent[-1]] if sent else None
