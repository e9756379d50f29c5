"""Plots with no values, one value, huge values and invalid values."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from inline_snapshot import snapshot

from rota.cli.output.plot import (
    TIME_STEPS,
    WHOLE_STEPS,
    WIDTH,
    Dot,
    Plot,
    Scale,
    draw_plot,
    height_at,
    scales,
)
from rota.cli.output.profile import lines
from rota.cli.output.profile_svg import svg, write_svg
from rota.wire.training import JobProfile, SizeFigure, StepFigure, WorkerFigure
from tests.golden.profiles import PROFILE

NOTHING = JobProfile("1q1g", "", "", 1, 4, None, 0.0, sizes=[])
NUMBER = re.compile(r"nan|inf(?!o)", re.IGNORECASE)
SVG = "{http://www.w3.org/2000/svg}"


def plot(*dots: Dot, line: tuple[Dot, ...] = ()) -> Plot:
    return Plot(
        title="title",
        x_title="x",
        dots=dots,
        line=line,
        show_x=lambda value: f"{value:g}",
        show_y=lambda value: f"{value:g}",
    )


def test_empty_plot_has_no_lines():
    assert draw_plot(plot()) == []
    assert draw_plot(plot(Dot(math.nan, 1.0), Dot(1.0, math.inf), Dot(1.0, -1.0))) == []


def test_single_dot_is_in_the_middle():
    drawn = draw_plot(plot(Dot(5.0, 2.0)))
    (row,) = [line for line in drawn if "●" in line]
    assert row.index("●") - row.index("┤") == pytest.approx(WIDTH / 2, abs=2)
    assert "nan" not in "".join(drawn)


def test_dots_errors_and_a_line():
    line = (Dot(1.0, 1.0), Dot(4.0, 3.0))
    assert "\n".join(draw_plot(plot(Dot(1, 1), Dot(3, 3.0, 0.9), line=line))) == snapshot("""\
title
4 ┤                                       │
  │                                       │
  │                                       │
3 ┤                                       ●          ··········
  │                                     ··│··········
2 ┤                         ············  │
  │             ············
  │ ············
1 ┤●
  │
0 ┤
  └┬─────────┬─────────┬─────────┬────────┬─────────┬─────────┬
   1        1.5        2        2.5       3        3.5        4   x\
""")


@pytest.mark.parametrize("huge", [1e12, 1e200, 1e299])
def test_huge_values_are_drawn(huge: float):
    drawn = draw_plot(plot(Dot(0.0, 1.0), Dot(huge, huge, huge)))
    assert sum("●" in line for line in drawn) == 2
    assert max(map(len, drawn)) < 100


@pytest.mark.parametrize(
    ("low", "high", "steps", "ticks"),
    [
        (1, 4, WHOLE_STEPS, [1, 2, 3, 4]),
        (0, 3480, TIME_STEPS, [0, 600, 1200, 1800, 2400, 3000]),
        (0, 0.084, TIME_STEPS, [0, 0.02, 0.04, 0.06, 0.08]),
        (0, 7.2e9, TIME_STEPS, [0, 2e9, 4e9, 6e9]),
        (0, 1e-12, (), [0, 2e-13, 4e-13, 6e-13, 8e-13, 1e-12]),
    ],
)
def test_ticks_are_round_and_few(
    low: float, high: float, steps: tuple[float, ...], ticks: list[float]
):
    assert Scale(low, high).ticks(7, steps=steps) == pytest.approx(ticks)


def test_line_has_values_between_its_ends_only():
    line = [Dot(1.0, 10.0), Dot(3.0, 30.0)]
    assert [height_at(line, x) for x in (0.0, 1.0, 2.0, 3.0, 4.0)] == [None, 10, 20, 30, None]


def test_y_axis_starts_at_zero_and_includes_errors():
    found = scales(plot(Dot(1, 10, 5), Dot(2, 3)))
    assert found is not None
    assert found[1].low == 0
    assert found[1].high >= 15


def root(profile: JobProfile) -> ET.Element:
    """Well-formed, or this raises."""
    return ET.fromstring(svg(profile))


def texts(profile: JobProfile) -> list[str]:
    return [each.text or "" for each in root(profile).iter(f"{SVG}text")]


def test_svg_of_a_profile_has_a_panel_for_each_plot():
    titles = [each.text for each in root(PROFILE).iter(f"{SVG}text") if each.get("class") == "head"]
    assert titles == snapshot(
        [
            "speed-up over one worker: dots measured (hollow: across nodes), line fitted",
            "step time",
            "samples per second",
            "host memory",
            "GPU memory",
        ]
    )
    n_measured = sum(each.kind == "measured" for each in PROFILE.sizes)
    circles = list(root(PROFILE).iter(f"{SVG}circle"))
    assert len(circles) == n_measured + 4 * len(PROFILE.steps)


def test_svg_without_measurements():
    assert "no measurements yet" in texts(NOTHING)


def test_names_cannot_break_an_svg():
    evil = '</text><script>alert("1")</script>&\x1b\u202e\ud800'
    found = root(replace(PROFILE, name=evil))
    assert list(found.iter(f"{SVG}script")) == []
    assert any('<script>alert("1")</script>' in (each.text or "") for each in found.iter())


def hostile() -> JobProfile:
    """Figures that no daemon sends."""
    sizes = [
        SizeFigure(
            1, "measured", "here", count=1, epoch_s=1e300, epoch_error=math.inf, speedup=1.0
        ),
        SizeFigure(2, "measured", "here", count=1, epoch_s=math.nan, speedup=math.nan),
        SizeFigure(2, "fitted", "here", epoch_s=None, speedup=None),
        SizeFigure(512, "fitted", "prior", epoch_s=1e-300, speedup=1e300, speedup_error=math.nan),
    ]
    steps = [
        StepFigure(0.0, 1, 0, 1, 0.0, step_s=math.nan, samples_per_s=math.inf),
        StepFigure(1e17, 1, 0, 1, 0.0, step_s=1e290, memory_bytes=2**62),
    ]
    workers = [WorkerFigure(0, step_s=math.nan, memory_bytes=2**62)]
    return replace(NOTHING, max_gpus=512, sizes=sizes, steps=steps, workers=workers)


@pytest.mark.parametrize("profile", [NOTHING, PROFILE, hostile()])
def test_invalid_numbers_are_not_shown(profile: JobProfile):
    assert [line for line in lines(profile) if NUMBER.search(line)] == []
    drawn = ET.tostring(root(profile), encoding="unicode")
    assert NUMBER.search(drawn) is None
    for name, value in re.findall(r' (cx|cy|x|y|x1|x2|y1|y2)="([^"]*)"', drawn):
        assert 0 <= float(value) < 5000, name


def test_many_sizes_are_shortened():
    sizes = [
        SizeFigure(n, "fitted", "prior", epoch_s=60 / n, speedup=n, speedup_error=0.5)
        for n in range(1, 513)
    ]
    shown = lines(replace(NOTHING, max_gpus=512, sizes=sizes))
    rows = [line.split()[0] for line in shown if line.endswith("assumed for every job")]
    assert rows == ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512"]


def test_an_svg_is_written_to_its_file(tmp_path: Path):
    write_svg(PROFILE, str(tmp_path / "bert.svg"))
    assert ET.parse(tmp_path / "bert.svg").getroot().tag == f"{SVG}svg"
