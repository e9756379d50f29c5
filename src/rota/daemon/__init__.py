"""The shell around the kernel: events in, rows written, commands out."""
