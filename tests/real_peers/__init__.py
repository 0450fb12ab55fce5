"""Runs against servers that nobody here wrote. Not part of `make test`: they install the peer first; see run.py."""
