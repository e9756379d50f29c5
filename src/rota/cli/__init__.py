"""The command line: one file per noun. Commands import what they need when they run."""
