"""The tests, in suites by what they cost to run; see CONTRIBUTING.md."""
