"""Writes all generated files; run by `scripts/generate`."""

from tests.tidy import (
    chart,
    command_pages,
    config_tables,
    diagrams,
    failures,
    job_fields,
    json_schemas,
)


def main() -> None:
    # The chart copies the CRD, so it comes last.
    for module in (
        job_fields,
        config_tables,
        command_pages,
        diagrams,
        failures,
        json_schemas,
        chart,
    ):
        for path, text in module.generated_files().items():
            path.write_text(text)


if __name__ == "__main__":
    main()
