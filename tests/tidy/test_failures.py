"""The reference names every known failure, as the table has it."""

from rota.daemon.failures import FAILURES
from tests.tidy.failures import REFERENCE, with_table


def test_the_reference_is_drawn_from_the_table() -> None:
    text = REFERENCE.read_text()
    assert text == with_table(text), "run: python -m tests.tidy.failures"


def test_every_failure_has_one_row_and_its_words() -> None:
    names = [each.name for each in FAILURES]
    assert len(set(names)) == len(names)
    for each in FAILURES:
        assert all((each.words, each.hint, each.evidence)), f"say more about {each.name}"
        # They stand in a sentence: "exit code 1: the GPU ran out of memory (OOM)".
        assert not set(each.words) & set("().;|"), each.words
