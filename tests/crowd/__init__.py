"""Thousands of clients on one real daemon: what they cost, counted by the kernel and by SQLite, not by us."""
