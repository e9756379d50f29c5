"""What `benchmarks.kubernetes` measures: hundreds of nodes that only look like nodes."""
