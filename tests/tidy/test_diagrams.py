"""Generated diagrams in the documents are up to date."""

from tests.tidy.diagrams import JOB_LIFE, with_drawing


def test_the_life_of_a_job_is_drawn_as_the_table_has_it() -> None:
    text = JOB_LIFE.read_text()
    assert text == with_drawing(text), "run scripts/generate"
