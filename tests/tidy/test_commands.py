"""The pages about commands are in step with the commands."""

from tests.tidy.command_pages import generated_files


def test_the_reference_is_generated_from_the_commands() -> None:
    for path, text in generated_files().items():
        assert path.exists(), "run scripts/generate"
        assert path.read_text() == text, f"{path.name} is out of date: run scripts/generate"
