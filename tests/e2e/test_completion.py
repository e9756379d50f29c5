"""The completion scripts run in their shells, with a real daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess

BASH = """
eval "$(rota completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_rota_completion; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
FISH = """
rota completion fish | source
complete --do-complete '{line}'
"""
ZSH = """
compdef() {{ :; }}
_describe() {{ print -l -- ${{found%%:*}}; }}
_files() {{ :; }}
eval "$(rota completion zsh)"
words=({words}); CURRENT=$#words
_rota_completion
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_values_are_completed_in_the_shell(daemon: DaemonProcess, shell: str):
    if shutil.which(shell) is None:
        assert not os.environ.get("CI"), f"{shell} is missing"
        pytest.skip(f"{shell} is missing")
    job = daemon.submit("await never", name="lively")
    env = {
        **os.environ,
        "ROTA_URL": daemon.door,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def completed(*words: str) -> list[str]:
        line = " ".join(words)
        quoted = " ".join(f"'{word}'" for word in words)
        script = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell].format(words=quoted, line=line)
        done = subprocess.run(
            [shell, "-c", script], env=env, capture_output=True, text=True, check=True
        )
        return [each.split("\t")[0] for each in done.stdout.split("\n") if each]

    assert completed("rota", "cancel", "live") == ["lively"]
    assert completed("rota", "cancel", job[:-1]) == [job]
    assert completed("rota", "submit", "--mode", "tor") == ["torchrun"]
    assert completed("rota", "list", "-s", "succ") == ["succeeded"]
    assert completed("rota", "policy", "set", "tire") == ["tiresias"]
