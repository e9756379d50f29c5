"""The layout of the results pages, with made-up values."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import decide, many_jobs, philly, pollux, voda
from benchmarks.decide import JobChurn
from benchmarks.support.markdown import NO_VALUE, page, publish, ratio, table, whole
from benchmarks.support.simulation import trace_file
from rota.policies.fifo import Fifo
from rota.simulator.metrics import RunMetrics

MADE_UP = RunMetrics(
    policy="fifo",
    jobs=24,
    finished=24,
    mean_jct_s=3000.0,
    p50_jct_s=2500.0,
    p95_jct_s=5000.0,
    p99_jct_s=6000.0,
    makespan_s=6500.0,
    mean_wait_s=1000.0,
    utilisation=0.9,
    gpu_hours=20.0,
    preemptions=1,
    resizes=2,
    moves=3,
    rounds=40,
    decision_ms_p50=1.0,
    decision_ms_p99=2.0,
    decision_ms_max=3.0,
    worst_unfairness=1.5,
    unfair_share=0.25,
)


def table_widths(text: str) -> list[set[int]]:
    """For every table, the numbers of cells of its rows."""
    blocks = [block for block in text.split("\n\n") if block.startswith("| ")]
    return [{line.count("|") for line in block.splitlines()} for block in blocks]


def test_table() -> None:
    assert table(("name", "s"), [("a", "1"), ("b", "2")]) == (
        "| name | s |\n| --- | ---: |\n| a | 1 |\n| b | 2 |"
    )


def test_missing_values() -> None:
    assert (whole(None), ratio(None, 1.0)) == (NO_VALUE, NO_VALUE)
    assert (whole(1234.5), ratio(3.0, 2.0)) == ("1,234", "1.50")


def test_publish_prints_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results" / "a.md"
    publish(page("# A", "b\n"), path)
    assert path.read_text() == "# A\n\nb\n"
    assert capsys.readouterr().out.startswith("# A\n\nb\n")


def test_voda_page() -> None:
    rows = [MADE_UP] * len(voda.PUBLISHED)
    slow = [replace(MADE_UP, mean_jct_s=9000.0)] * len(voda.PUBLISHED)
    by_cost = {0: slow, 30: rows}
    assert voda.best_cost(by_cost) == 30
    text = voda.render(by_cost, 30, guarded=slow, waits=[voda.Wait("run_1", 1, MADE_UP)])
    assert all(len(widths) == 1 for widths in table_widths(text))
    assert len(table_widths(text)) == 5
    assert "| **30** |" in text
    assert "3,000 / 3,506 = 0.86" in text
    assert "3,000 → 9,000" in text


def test_voda_fit_of_equal_results_is_perfect() -> None:
    rows = [
        replace(MADE_UP, mean_jct_s=each.mean_jct_s, makespan_s=each.makespan_s)
        for each in voda.PUBLISHED
    ]
    assert voda.misfit(rows) == 0
    assert voda.mean_ratio(rows, "makespan_s") == 1


def test_pollux_page() -> None:
    published = {
        (peer, load, workload): 2000.0
        for peer in pollux.PEERS
        for load in pollux.FOLDERS
        for workload in pollux.WORKLOADS
    }
    results = {
        (variant, load, workload): MADE_UP
        for variant in pollux.VARIANTS + pollux.UNGUARDED
        for load in pollux.FOLDERS
        for workload in pollux.WORKLOADS
    }
    text = pollux.render(published, results)
    assert all(len(widths) == 1 for widths in table_widths(text))
    assert len(table_widths(text)) == 3
    assert "| of Tiresias | 1.00 | 1.00 | 1.00 | 1.50 |" in text


def test_pollux_published(tmp_path: Path) -> None:
    file = tmp_path / "published.csv"
    file.write_text("policy,load,workload,avg_jct_s\npollux,0.5,workload-1,1059.5\n")
    assert pollux.read_published(file) == {("pollux", "0.5", "workload-1"): 1059.5}


def test_philly_page_marks_values_above_the_limit() -> None:
    quick = philly.Result(philly.Cost(100.4, 90.0, 300 * 2**20), MADE_UP)
    slow = philly.Result(philly.Cost(301.0, 90.0, 2**31), replace(MADE_UP, policy="tiresias"))
    text = philly.render([quick, slow])
    assert all(len(widths) == 1 for widths in table_widths(text))
    assert "| fifo | 100 | 90 | 300 | 300 | 1,024 | 40 | 1.0 | 2.0 | 3.0 |" in text
    assert "| tiresias | **301** | 90 | 300 | **2,048** | 1,024 |" in text


def test_decide_page() -> None:
    def result(size: decide.Size, ms: float) -> decide.Result:
        timing = decide.Timing(ms, ms)
        each = decide.Round(timing, timing, timing)
        return decide.Result("afs-l", size, each, (each,))

    results = [result(size, 2.0 * size.jobs / 160) for size in decide.SIZES]
    text = decide.render([*results, result(decide.ROOMY, 300.0)], "2 cores")
    assert all(len(widths) == 1 for widths in table_widths(text))
    assert text.count("| 1.00 |") == 1
    assert "Above the aim: `afs-l` at 2,048 GPUs, 400 jobs." in text


def test_many_jobs_page() -> None:
    size = many_jobs.ManyJobsSize(2, 20, quadratic_nodes_s=0.5, quadratic_cancels_s=1.5)
    times = many_jobs.measure(size)
    text = many_jobs.render([replace(times, nodes_s=0.25, cancels_s=1.0)])
    assert "| 2 | 20 | 500 | 250 | 1,500 | 1,000 |" in text


def test_job_churn_keeps_the_number_of_jobs() -> None:
    churn = JobChurn(2, 20)
    decide.time_round(churn, Fifo())
    assert sum(map(len, churn.view().planned.values())) > 8
    churn.turn_over()
    decide.time_round(churn, Fifo())
    assert len(churn.view().jobs) == 20


@pytest.mark.parametrize(("given", "said"), [(None, "ROTA_TRACES"), ("empty", "has no a.csv")])
def test_missing_traces_are_named(tmp_path: Path, given: str | None, said: str) -> None:
    folder = tmp_path if given else None
    with pytest.raises(SystemExit, match=said):
        trace_file(folder, "a.csv", origin="somewhere")
