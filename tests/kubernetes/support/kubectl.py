"""kubectl, to observe a namespace independently of rota."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

from tests.kubernetes.cluster.handle import Cluster


class Kubectl:
    __slots__ = ()
    cluster: Cluster
    namespace: str

    def kubectl(self, *words: str, given: Any = None) -> str:
        done = self.ask_kubectl(*words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def give_up_lease(self) -> None:
        """Release the lease of a killed daemon, so that the next one need not wait."""
        self.kubectl("delete", "lease", "rota")

    def ask_kubectl(self, *words: str, given: Any = None) -> subprocess.CompletedProcess[str]:
        where = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        text = None if given is None else json.dumps(given)
        command = [shutil.which("kubectl") or "kubectl", *where, *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)
