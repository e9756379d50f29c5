"""The local engine with real processes. Tests wait for events and exits, never for a fixed time."""
