"""The parts of the benchmark, one file each."""
