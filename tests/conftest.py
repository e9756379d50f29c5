"""Settings of all suites: examples of Hypothesis, signals, logging, order and skipped tests."""

import os
import signal
from collections.abc import Generator

import pytest
import structlog
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler.load import LoadScheduling

from tests.support.scheduling import ClusterScheduling
from tests.support.seed_counts import IS_LONG, LONG_REASON, count

# Short runs use the same examples every time, so that no change fails by chance; long
# runs look for new ones. A failure prints the line that replays it. There is no deadline for one
# example, because a busy machine is not a bug.
settings.register_profile(
    "ci", max_examples=count(500), derandomize=True, print_blob=True, deadline=None
)
settings.register_profile("long", max_examples=count(500), print_blob=True, deadline=None)
settings.load_profile("long" if IS_LONG else "ci")

# structlog draws tracebacks with rich by default, and each costs a tenth of a second or more.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)

NEVER_CAUGHT = {signal.SIGKILL, signal.SIGSTOP}
OF_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
"""Python itself ignores these, and `subprocess` restores them for its children."""


def pytest_configure() -> None:
    """Programs under test start with default signal handling. The caller may have changed it: nohup
    ignores SIGHUP, a shell ignores SIGINT and SIGQUIT of what it runs in the background, and a
    program inherits what is ignored or blocked. A signal with a handler is reset to its default
    when a program is started, and this process goes on ignoring it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - NEVER_CAUGHT - OF_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the cluster come last, as the scheduling of several processes expects."""
    items.sort(key=lambda item: item.get_closest_marker("cluster") is not None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScheduling | None:
    """Used with the default `--dist load`."""
    return ClusterScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI, where the list of skipped tests is not read, a missing part is a failure."""
    if not os.environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if LONG_REASON not in why:
        report.outcome = "failed"
        report.longrepr = f"CI is set, and nothing may be skipped there: {why}"
