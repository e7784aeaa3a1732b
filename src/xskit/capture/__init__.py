"""Captures: what was on a wire once, in files."""
