"""The first process inside a cluster's namespaces: it starts, stops and pauses the parts.

Requests are lines of JSON on a socket. An open connection keeps the cluster. When the last one
is closed, and the cluster was not told to stay, this process exits, and the kernel ends every
process, mount, bridge and firewall rule with it. So a cluster does not outlive killed tests.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

FIRST_HOLD_S = 30.0
STOP_PATIENCE_S = 10.0
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Settings that a kubelet would change for the whole machine; here it finds files with these
values."""


class InitProcess:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: dict[str, dict[str, Any]] = {}
        self.pids: dict[str, int] = {}
        self.exits: dict[int, asyncio.Future[int]] = {}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.n_holds = 0
        self.stays = False
        self.over = asyncio.Event()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self.reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.over.set)
        server = await asyncio.start_unix_server(self.hold, self.folder / "keeper.sock")
        loop.call_later(FIRST_HOLD_S, self.end_if_unheld)
        await self.over.wait()
        server.close()

    def end_if_unheld(self) -> None:
        if not self.n_holds and not self.stays:
            self.over.set()

    async def hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_holds += 1
        try:
            while line := await reader.readline():
                answer = await self.answer(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            self.n_holds -= 1
            self.end_if_unheld()
            writer.close()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            match request["do"]:
                case "start":
                    return {"pid": self.start(request["name"], request.get("part"))}
                case "stop":
                    return {"code": await self.stop(request["name"], request["is_kill"])}
                case "signal":
                    os.killpg(self.pids[request["name"]], request["number"])
                case "run":
                    return await self.run(request["command"])
                case "status":
                    return {name: self.is_running(name) for name in self.parts}
                case "holds":
                    return {"n": self.n_holds, "stays": self.stays}
                case "stay":
                    self.stays = True
                case "down":
                    self.over.set()
                case unknown:
                    return {"error": f"unknown request {unknown}"}
        except (OSError, KeyError) as error:
            return {"error": f"{request['do']}: {error!r}"}
        return {}

    def start(self, name: str, part: dict[str, Any] | None) -> int:
        if part is not None:
            self.parts[name] = part
        if self.is_running(name):
            return self.pids[name]
        home = self.folder / name
        home.mkdir(exist_ok=True)
        with (home / "log").open("ab") as log:
            self.pids[name] = self.spawn(self.parts[name], home=home, output=log.fileno())
        return self.pids[name]

    def spawn(self, part: dict[str, Any], *, home: Path, output: int) -> int:
        process = subprocess.Popen(
            part["command"],
            cwd=home,
            env=os.environ | part.get("environment", {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        self.processes[process.pid] = process
        self.exits[process.pid] = asyncio.get_running_loop().create_future()
        return process.pid

    def is_running(self, name: str) -> bool:
        pid = self.pids.get(name)
        return pid is not None and not self.exits[pid].done()

    async def stop(self, name: str, is_kill: bool) -> int:
        pid = self.pids[name]
        if self.is_running(name):
            os.kill(pid, signal.SIGKILL if is_kill else signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self.exits[pid]), STOP_PATIENCE_S)
        os.kill(pid, signal.SIGKILL)
        return await self.exits[pid]

    async def run(self, command: list[str]) -> dict[str, Any]:
        output = self.folder / "keeper" / f"output-{os.urandom(4).hex()}"
        with output.open("wb") as file:
            pid = self.spawn({"command": command}, home=self.folder, output=file.fileno())
        code = await self.exits[pid]
        text = output.read_text(errors="replace")
        output.unlink()
        return {"code": code, "output": text}

    def reap(self) -> None:
        """Every orphaned process in the namespaces becomes a child of this process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.processes:
                code = os.waitstatus_to_exitcode(status)
                self.processes.pop(pid).returncode = code
                self.exits[pid].set_result(code)


def mount_private_folders(folder: Path) -> None:
    """Mount empty folders where programs would write to folders of the machine."""
    mount("--make-rshared", "/")
    mount("-t", "tmpfs", "tmpfs", "/run")
    for name in ("lib", "log"):
        private = folder / "node" / name
        private.mkdir(parents=True)
        mount("--bind", str(private), f"/var/{name}")
    for name, value in KERNEL_SETTINGS.items():
        decoy = folder / "node" / name.replace("/", "-")
        decoy.write_text(f"{value}\n")
        mount("--bind", str(decoy), f"/proc/sys/{name}")


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def main() -> None:
    folder = Path(sys.argv[1])
    mount_private_folders(folder)
    # The namespace supervisor has the other end, and sends a line when the network is ready.
    if sys.stdin.readline():
        asyncio.run(InitProcess(folder).serve())


if __name__ == "__main__":
    main()
