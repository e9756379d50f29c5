"""The conformance suite: scenarios that every engine must pass."""
