"""The output of workers on disk, whatever engine runs them: how it is written and read back."""
