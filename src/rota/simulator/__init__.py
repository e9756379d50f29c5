"""What-if on a trace: readers, a runner around the production kernel, and the report."""
