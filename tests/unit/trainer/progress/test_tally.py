"""The tally between two reports."""

from rota_trainer.progress.position import Position
from rota_trainer.progress.tally import Tally
from rota_trainer.reporting.limits import MOST_METRICS, MOST_RECORDS


def test_fast_steps_share_a_record_and_slow_ones_have_their_own() -> None:
    tally = Tally()
    for seconds in (0.0625, 0.03125, 0.0625, 0.5):
        tally.step(seconds, samples=2)
    records = [record[1:] for record in tally.take()["steps"]]
    assert records == [(3, 0.15625, 0.0625, 6), (1, 0.5, 0.5, 2)]


def test_take_clears_records_and_keeps_the_position() -> None:
    tally = Tally()
    tally.go_to(2, 1)
    tally.steps_total = 4
    tally.step(0.01)
    tally.metrics({"loss": 1.0})
    first, second = tally.take(), tally.take()
    assert (len(first["steps"]), first["metrics"]) == (1, {"loss": 1.0})
    assert (second["steps"], second["metrics"]) == ([], {})
    assert first["epochs_done"] == second["epochs_done"] == 2.25


def test_dropped_records_are_counted() -> None:
    tally = Tally()
    for number in range(MOST_RECORDS + 5):
        tally.step(1.0, samples=number)
        tally.go_to(number, 0)
        tally.end_epoch(1.0, steps=1, samples=0)
    tally.metrics({f"metric-{number}": 0.0 for number in range(MOST_METRICS + 7)})
    taken = tally.take()
    assert [record[4] for record in taken["steps"]] == list(range(5, MOST_RECORDS + 5))
    assert [record[1] for record in taken["epochs"]] == list(range(5, MOST_RECORDS + 5))
    assert list(taken["metrics"]) == [f"metric-{number}" for number in range(MOST_METRICS)]
    assert taken["dropped"] == 5 + 5 + 7


def test_the_newest_value_of_a_metric_counts_even_when_there_are_many() -> None:
    tally = Tally()
    tally.metrics({f"metric-{number}": 0.0 for number in range(MOST_METRICS)})
    tally.metrics({"metric-0": 7.0})
    assert tally.take()["metrics"]["metric-0"] == 7.0


def test_earlier_progress_counts_until_the_position_is_known() -> None:
    tally = Tally(4.5, 9.0)
    assert (tally.progress, tally.take()["epochs_total"]) == (4.5, 9.0)
    tally.go_to(3, 0)
    assert tally.progress == 3.0


def test_positions_within_a_step_an_epoch_and_between() -> None:
    tally = Tally()
    tally.go_to(2, 3)
    tally.steps_total = 4
    assert tally.position() == Position(2, 3, 2.75)
    assert tally.position(is_in_step=True, is_in_epoch=True) == Position(2, 4, 3.0)
    assert tally.position(is_in_epoch=True) == Position(3, 0, 3.0)


def test_loader_longer_than_its_length_counts_as_one_epoch() -> None:
    tally = Tally()
    tally.go_to(1, 9)
    tally.steps_total = 4
    assert tally.progress == 2.0


def test_progress_of_a_checkpoint_counts_before_the_length_is_known() -> None:
    tally = Tally()
    tally.go_on_from(Position(2, 3, 2.75))
    assert tally.progress == 2.75
    tally.steps_total = 4
    tally.step_of_epoch += 1
    assert tally.progress == 3.0


def test_unknown_length_counts_whole_epochs() -> None:
    tally = Tally()
    tally.go_on_from(Position(2, 3, 2.0))
    tally.step_of_epoch += 1
    assert tally.progress == 2.0
    tally.go_to(3, 0)
    assert tally.progress == 3.0
