"""A fake daemon that sends generations to workers, with the daemon's wire format."""

import json
import os
import signal
import socketserver
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from rota_trainer.reporting.messages import Member, Orders, Switch, to_json
from tests.support.timeouts import PATIENCE_S

JOB = "job-1"


class Coordinator:
    """`target` holds the numbers of the wanted workers. A dead worker is removed from it."""

    def __init__(self, folder: Path, start: Callable[[int, dict[str, str]], None]) -> None:
        self.changed = threading.Condition()
        self.reports: dict[int, dict[str, Any]] = {}
        self.heard_s: dict[int, float] = {}
        self.begun: set[int] = set()
        self.processes: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.generation = -1
        self.target: list[int] = []
        self.stop = ""
        self.switch: Switch | None = None
        self.refused: dict[int, str] = {}
        self.reacts = True
        """False: deaths are recorded without a reaction, as while the daemon is away."""
        self._lost: set[int] = set()
        self._given: dict[int, Orders] = {}
        self._history: dict[int, list[int]] = {}
        self._folder = folder
        self._start = start
        self._server: socketserver.BaseServer | None = None
        self.serve()

    # -- what the daemon wants --------------------------------------------------------------------

    def want(self, *numbers: int) -> None:
        """Set a new generation of these workers; start those that do not run yet."""
        with self.changed:
            new = [number for number in numbers if number not in self.begun]
            self.begun.update(new)
            self._change(list(numbers))
        for number in new:
            self._start(number, self._environment(number))

    def start_again(self, *numbers: int) -> None:
        """Start these workers as the next attempt, after all earlier ones have ended."""
        with self.changed:
            self.stop, self.reacts = "", True
        self.want(*numbers)

    def give_up(self, number: int) -> None:
        """Continue without a worker as if it were dead."""
        with self.changed:
            self._lost.add(number)
            self._take_out_dead()

    def ask_to_stop(self, reason: str) -> None:
        with self.changed:
            self.stop = reason
            self.changed.notify_all()

    def kill(self, *numbers: int, by: int = signal.SIGKILL) -> None:
        for number in numbers:
            os.kill(self.processes[number], by)

    def started(self, number: int, process: int) -> None:
        with self.changed:
            self.processes[number] = process
            self.changed.notify_all()

    def ended(self, number: int, code: int) -> None:
        with self.changed:
            self.ends[number] = code
            if self.reacts:
                self._take_out_dead()
            self.changed.notify_all()

    def react_again(self) -> None:
        with self.changed:
            self.reacts = True
            self._take_out_dead()

    def _take_out_dead(self) -> None:
        left = [number for number in self.target if number not in self._gone()]
        if left and left != self.target:
            self._change(left)

    def _change(self, numbers: list[int]) -> None:
        self.generation += 1
        self.target = numbers
        self._complete()

    def _is_broken(self) -> bool:
        """Whether a member of the committed generation is dead."""
        standing = max((each["generation"] for each in self.reports.values()), default=-1)
        return not self._gone().isdisjoint(self._history.get(standing, []))

    def _gone(self) -> set[int]:
        """The workers that are dead or given up. A worker that left by plan exited with 0."""
        return self._lost | {number for number, code in self.ends.items() if code}

    def _complete(self) -> None:
        """Send the switch if all its members are ready and compatible."""
        said = [self.reports.get(number, {}) for number in self.target]
        first = next((each["identity"] for each in said if each.get("address")), "")
        for number, each in zip(self.target, said, strict=True):
            if each.get("address") and each["identity"] != first:
                self.refused[number] = f"it has {each['identity']}; the others {first}"
        fits = [number for number in self.target if number not in self.refused]
        if fits != self.target:
            self.generation += 1
            self.target = fits
            said = [self.reports.get(number, {}) for number in fits]
        is_given = self.switch is not None and self.switch.generation == self.generation
        if fits and not is_given and all(each.get("address") for each in said):
            members = [Member(n, each["address"]) for n, each in zip(fits, said, strict=True)]
            self.switch = Switch(self.generation, members, self._is_broken())
            self._history[self.generation] = list(fits)
        self.changed.notify_all()

    # -- what workers say -------------------------------------------------------------------------

    def heard(self, report: dict[str, Any]) -> dict[str, Any]:
        """The answer to a report, held until there is a new order. A worker without an address is
        not ready to join, and its reported generation has no meaning."""
        number = report["worker"]
        with self.changed:
            self.heard_s[number] = time.monotonic()
            if report["address"]:
                self.reports[number] = report
                self._complete()
            self.changed.notify_all()
            given = self._given.get(number, Orders())
            self.changed.wait_for(lambda: self._orders(number) != given, report["wait_s"])
            orders = self._orders(number)
            self._given[number] = orders
        return to_json(orders)

    def _orders(self, number: int) -> Orders:
        report, switch = self.reports.get(number), self.switch
        if report is None or (switch and switch.generation <= report["generation"]):
            switch = None
        return Orders(stop=self.stop, switch=switch, refused=self.refused.get(number, ""))

    def wait_until(self, is_so: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        with self.changed:
            if not self.changed.wait_for(is_so, within_s):
                raise AssertionError(
                    f"not within {within_s:.0f} s: generation {self.generation} of {self.target},"
                    f" ends {self.ends}, reports {self._places()}"
                )

    def wait_for_generation(self, within_s: float = PATIENCE_S) -> None:
        """Wait until every member has reported the newest generation."""
        self.wait_until(self.is_committed, within_s)

    def wait_for_silence(self, number: int, heartbeat_s: float) -> None:
        """Wait until the others have reported for this time without the worker."""
        self.wait_until(lambda: max(self.heard_s.values()) - self.heard_s[number] > heartbeat_s)

    def wait_for_switch(self) -> None:
        """Wait until the newest generation was sent; workers may not have received it."""
        self.wait_until(
            lambda: self.switch is not None and self.switch.generation == self.generation
        )

    def wait_for_steps(self, count: int) -> None:
        """Wait for this many more steps."""
        wanted = count + self.steps()
        self.wait_until(lambda: self.steps() >= wanted)

    def wait_for_ends(self, *numbers: int, within_s: float = PATIENCE_S) -> list[int]:
        self.wait_until(lambda: all(number in self.ends for number in numbers), within_s)
        return [self.ends[number] for number in numbers]

    def steps(self) -> int:
        return max((report["global_step"] for report in self.reports.values()), default=0)

    def is_committed(self) -> bool:
        said = [self.reports.get(number) for number in self.target]
        return all(each and each["generation"] == self.generation for each in said)

    def _places(self) -> dict[int, tuple[int, int]]:
        return {
            number: (report["generation"], report["global_step"])
            for number, report in self.reports.items()
        }

    # -- the wire ---------------------------------------------------------------------------------

    def serve(self) -> None:
        coordinator = self
        path = self._folder / "socket"
        path.unlink(missing_ok=True)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = json.dumps(coordinator.heard(report)).encode()
                if coordinator._server is not server:
                    self.close_connection = True
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002
                """Do not log requests."""

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: object, client_address: object) -> None:
                """Ignore the error of a worker that was killed during a request."""

        server = self._server = Server(str(path), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def go_away(self) -> None:
        """Answer no request until `serve`."""
        server, self._server = self._server, None
        self.reacts = False
        (self._folder / "socket").unlink(missing_ok=True)
        if server is not None:
            server.shutdown()
            server.server_close()

    def _environment(self, number: int) -> dict[str, str]:
        return {
            "ROTA_URL": f"unix://{self._folder}/socket",
            "ROTA_TOKEN": "token",
            "ROTA_JOB": JOB,
            "ROTA_WORKER": f"{JOB}/1/{number}/nonce",
            "ROTA_GENERATION": str(self.generation),
            "ROTA_CHECKPOINT_DIR": str(self._folder / "checkpoints"),
            "RANK": "0",
        }
