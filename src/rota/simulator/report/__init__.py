"""The report of a simulation: one HTML file with its own charts and nothing from elsewhere."""
