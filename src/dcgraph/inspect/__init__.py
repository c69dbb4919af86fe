"""Looking inside a chain: probe, trace, watch and debug."""
