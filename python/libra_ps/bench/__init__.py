"""Benchmarks of the front end: `python -m libra_ps.bench`."""
