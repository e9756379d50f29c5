"""Tests of the cluster run beside the other tests, each module of them in one process."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.scheduling import next_cluster_test
from tests.support.timeouts import PATIENCE_S
from tests.tidy.tree import ROOT

N_TESTS = 12
OTHER = f"""
import os, time
from pathlib import Path
import pytest

HERE = Path(os.environ["HERE"])

@pytest.mark.parametrize("number", range({N_TESTS}))
def test_waits_for_a_test_of_the_cluster(number):
    until_s = time.monotonic() + {PATIENCE_S}
    while not list(HERE.glob("cluster-*")):
        assert time.monotonic() < until_s
        time.sleep(0.01)
"""
OF_CLUSTER = f"""
import os
from pathlib import Path
import pytest

HERE = Path(os.environ["HERE"])

@pytest.mark.parametrize("number", range({N_TESTS}))
@pytest.mark.cluster
def test_of_the_cluster(number):
    module = Path(__file__).stem
    (HERE / f"cluster-{{module}}-{{number}}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""
PLUGINS = ["-p", "xdist", "-p", "tests.conftest", "-p", "no:cacheprovider"]


def run(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "tests" / "kubernetes"
    folder.mkdir(parents=True)
    (tmp_path / "tests" / "test_other.py").write_text(OTHER)
    for module in ("test_a.py", "test_b.py"):
        (folder / module).write_text(OF_CLUSTER)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cluster\n")
    env = {**os.environ, "HERE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-n", "4", "--maxschedchunk", "1", *PLUGINS, "tests"]
    return subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )


def test_cluster_tests_run_beside_the_others(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"{3 * N_TESTS} passed" in done.stdout
    first, second = (
        {(tmp_path / f"cluster-{module}-{number}").read_text() for number in (0, 1)}
        for module in ("test_a", "test_b")
    )
    assert len(first) == len(second) == 1
    assert first != second


def test_a_process_stays_with_its_module() -> None:
    tests = ["m::1", "n::1", "n::2", "o::1"]
    assert next_cluster_test(tests, last="n::0", busy={"m"}) == 1
    assert next_cluster_test(tests, last="gone::1", busy={"m", "n"}) == 3
    assert next_cluster_test(tests, last=None, busy={"m", "n", "o"}) == 0
