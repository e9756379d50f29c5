"""Exit reasons that every engine spells in the same way, so that diagnosis can recognise them.

Supervisors import this module. It must import the standard library only (ADR 0012).
"""

OUT_OF_MEMORY = "out of host memory"
"""The reason starts with this text when the kernel killed a process of the worker at its memory
limit."""
