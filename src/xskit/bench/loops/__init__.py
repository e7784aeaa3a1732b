"""The compiled loops of the benchmarks, and the records they work on."""
