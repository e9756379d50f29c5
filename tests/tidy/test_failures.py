"""docs/reference/failures.md lists every known failure of the catalogue."""

from rota.daemon.diagnosis.catalogue import FAILURES
from tests.tidy.failures import REFERENCE, with_table


def test_the_reference_is_drawn_from_the_table() -> None:
    text = REFERENCE.read_text()
    assert text == with_table(text), "run scripts/generate"


def test_every_failure_has_one_row_and_a_text() -> None:
    names = [each.name for each in FAILURES]
    assert len(set(names)) == len(names)
    for each in FAILURES:
        assert all((each.message, each.hint, each.matchers)), f"say more about {each.name}"
        # The text is part of a sentence: "exit code 1: the GPU ran out of memory (OOM)".
        assert not set(each.message) & set("().;|"), each.message
