"""The examples of docs/reference/trainer.md run as written, and resume."""

import re
from pathlib import Path

import pytest

from tests.integration.trainer.fake_daemon import environment, run_training_script

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "trainer.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_of_the_page_runs_and_resumes(example: str, tmp_path: Path) -> None:
    env = environment(ROTA_CHECKPOINT_DIR=str(tmp_path / "checkpoints"))
    for _ in range(2):
        done = run_training_script(tmp_path, example, env=env)
        assert (done.returncode, done.stderr) == (0, "")
