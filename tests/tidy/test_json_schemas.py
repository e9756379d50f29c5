"""The JSON schemas in the docs are in step with the commands and their types."""

from tests.support.cli_commands import commands
from tests.tidy.json_schemas import FOLDER, SCHEMAS, generated_files


def test_every_command_with_json_has_a_schema() -> None:
    with_json = {
        name
        for name, each in commands().items()
        if any("--json" in option.flags for option in each.options)
    }
    assert set(SCHEMAS) == with_json


def test_the_schemas_in_the_docs_are_generated() -> None:
    found = generated_files()
    stale = [path.name for path, text in found.items() if path.read_text() != text]
    assert not stale, "run scripts/generate"
    assert set(FOLDER.iterdir()) <= set(found), "remove schemas of commands that are gone"
