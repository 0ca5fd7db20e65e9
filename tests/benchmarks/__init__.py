"""Measurements: `python -m tests.benchmarks`. A figure is a median; a speed against upstream is a ratio of one run."""
