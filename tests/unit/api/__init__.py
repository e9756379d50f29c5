"""The daemon's parts, each by itself."""
