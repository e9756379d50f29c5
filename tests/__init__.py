"""The tests, in rooms by what they cost to run; see CONTRIBUTING.md."""
