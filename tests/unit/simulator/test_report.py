"""The report: well-formed, self-contained, the same every time, and safe against its input."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.job import JobId
from rota.core.model.node import Gpu, Node, NodeId
from rota.errors import RotaError, UserError
from rota.simulator.metrics import AllocationSpan, Outcome, SimulationRun
from rota.simulator.report.html import SimulationInfo, render
from rota.simulator.report.writer import check_target, write_atomically
from rota.svg import num, safe

HOSTILE = "</title></svg><script>alert('x')</script><img src=x onerror=alert(1)>\x00\u202e\ud800"
VOID = {"meta", "br", "img", "link"}


def cluster(n_nodes: int = 2, n_gpus: int = 4) -> tuple[Node, ...]:
    gpus = tuple(Gpu(index, "A100") for index in range(n_gpus))
    return tuple(Node(NodeId(f"node-{number}"), gpus) for number in range(n_nodes))


def run(policy: str = "fifo", *, name: str = "job", n_jobs: int = 3) -> SimulationRun:
    """Jobs one after the other, each on both first GPUs of node-0."""
    slots = (Slot(NodeId("node-0"), (0, 1)),)
    return SimulationRun(
        policy=policy,
        cluster_gpus=8,
        outcomes=tuple(
            Outcome(JobId(f"j{at}"), name, at * 10.0, at * 10.0, at * 10.0 + 10, 0.0, 20.0, 9.0)
            for at in range(n_jobs)
        ),
        allocation_spans=tuple(
            AllocationSpan(JobId(f"j{at}"), slots, at * 10.0, at * 10.0 + 10)
            for at in range(n_jobs)
        ),
        usage=tuple((at * 10.0, 2.0 - at % 2) for at in range(n_jobs)),
        preemptions=0,
        resizes=0,
        moves=0,
        rounds=n_jobs,
        decision_s=(0.001,) * n_jobs,
    )


def page(*runs: SimulationRun, trace: str = "trace.csv") -> str:
    return render(SimulationInfo(trace, cluster(), (("cluster", "2x4"),)), runs)


class Balanced(HTMLParser):
    """Fails on an end tag that does not match, and counts what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def drawings(html: str) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]


def parsed(html: str) -> Balanced:
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


def test_the_page_and_its_drawings_are_well_formed():
    html = page(run("fifo"), run("tiresias:knob=4"))
    assert "script" not in parsed(html).seen
    # The chart of completion times, two of use, two Gantts, and the two keys of the legend.
    assert len(drawings(html)) == 7


def test_every_chart_says_what_it_shows():
    charts = [svg for svg in drawings(page(run())) if svg.get("role") == "img"]
    assert len(charts) == 3
    assert all((svg.findtext("title") or "").endswith(".") for svg in charts)


def test_nothing_comes_from_elsewhere():
    html = page(run())
    assert not re.search(r"https?:|//|@import|url\(|<link|<script|src=", html)


def test_same_runs_same_bytes():
    assert page(run("a"), run("b")) == page(run("a"), run("b"))


def test_only_the_last_section_knows_the_real_clock():
    fast, slow = run(), replace(run(), decision_s=(1.0, 2.0, 3.0))
    before, after = (page(each).split('<section id="decisions"') for each in (fast, slow))
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_hostile_names_are_only_text():
    html = page(run(HOSTILE, name=HOSTILE), trace=HOSTILE)
    seen = parsed(html).seen
    assert "script" not in seen
    assert "img" not in seen
    assert "\x00" not in html
    assert "\u202e" not in html
    html.encode("utf-8")
    drawings(html)


def test_long_names_are_cut():
    assert len(safe("x" * 1_000)) == 80
    assert safe("x" * 80) == "x" * 80


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (-0.001, "0"), (-0.5, "-0.5"), (100.0, "100"), (1.239, "1.24")]
)
def test_numbers_are_short(value: float, text: str):
    assert num(value) == text


def test_the_best_of_each_column_is_marked():
    slow = replace(
        run("slow"),
        outcomes=tuple(replace(job, finished_s=job.finished_s + 90) for job in run().outcomes),
    )
    html = page(run("fast"), slow)
    (row,) = re.findall(r'<tr><th scope="row" class="name">fast</th>.*?</tr>', html)[:1]
    assert '<td class="best">10.0<span class="unseen"> best</span></td>' in row


def test_one_policy_alone_is_not_the_best():
    assert 'class="best' not in page(run())


@pytest.mark.parametrize(
    "odd",
    [
        replace(run(), outcomes=(), allocation_spans=(), usage=(), rounds=0, decision_s=()),
        replace(run(), outcomes=tuple(replace(job, finished_s=math.inf) for job in run().outcomes)),
        replace(run(), allocation_spans=()),
        replace(run(), outcomes=tuple(replace(job, finished_s=0.0) for job in run().outcomes[:1])),
    ],
    ids=["no jobs", "none finished", "no tenures", "no time passed"],
)
def test_odd_runs_still_make_a_page(odd: SimulationRun):
    html = page(odd, run())
    parsed(html)
    assert "nan" not in html
    assert "inf" not in re.sub(r"infinit|info", "", html)


def test_many_changes_of_use_are_thinned():
    usage = tuple((float(at) / 10, float(at % 9)) for at in range(5_000))
    long_run = replace(run(n_jobs=50), usage=usage)
    (area,) = re.findall(r'<path class="area s0 d0" d="([^"]*)"', page(long_run))
    assert area.count("V") <= 602


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path):
    target = tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "new \ud800")
    assert target.read_text() == "old"
    write_atomically(target, "new")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_new_report_has_the_default_mode(tmp_path: Path):
    plain = tmp_path / "plain"
    plain.touch()
    write_atomically(tmp_path / "report.html", "new")
    assert (tmp_path / "report.html").stat().st_mode == plain.stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path):
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "report.html")
    write_atomically(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "report.html").read_text() == "new"


def test_unwritable_targets_are_rejected_first(tmp_path: Path):
    check_target(tmp_path / "report.html")
    with pytest.raises(UserError, match="no such directory"):
        check_target(tmp_path / "missing" / "report.html")
    with pytest.raises(UserError, match="not a regular file"):
        check_target(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="not a regular file"):
        check_target(tmp_path / "pipe")
    with pytest.raises(RotaError, match="cannot write"):
        write_atomically(tmp_path / "missing" / "report.html", "new")


def test_odd_targets_are_rejected_first(tmp_path: Path):
    loop = tmp_path / "loop.html"
    loop.symlink_to(loop)
    for place in (tmp_path / ("x" * 300), loop, Path("/proc/report.html")):
        with pytest.raises(UserError, match=r"^cannot write .+: .+") as caught:
            check_target(place)
        assert "\n" not in str(caught.value)
    check_target(tmp_path / ("x" * 255))
    write_atomically(tmp_path / ("x" * 255), "new")
    assert len(list(tmp_path.iterdir())) == 2
