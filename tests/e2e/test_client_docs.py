"""The examples of the client's reference page run as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_page_contains_examples():
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_of_the_page_runs(daemon: DaemonProcess, example: str):
    env = {**os.environ, "ROTA_URL": daemon.door}
    done = subprocess.run(
        [sys.executable, "-c", example], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
