"""The local engine on real processes. Tests wait for facts and process ends, never for time."""
