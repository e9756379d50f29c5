"""The client library, as far as no daemon is needed."""
