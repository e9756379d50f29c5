"""Writes all generated files; run by `scripts/generate`."""

from tests.tidy import chart, config_tables, job_fields


def main() -> None:
    # The chart copies the CRD, so it comes last.
    for generated in (job_fields.generated_files, config_tables.generated_files):
        for path, text in generated().items():
            path.write_text(text)
    for path, text in chart.generated_files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
