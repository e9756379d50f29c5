"""Words that all engines use for the same thing, so that those who read a reason know it again.

Imported by keepers: this file imports nothing.
"""

OUT_OF_MEMORY = "out of host memory"
"""How the reason begins when the kernel ended a worker, or a part of it, at its memory limit."""
