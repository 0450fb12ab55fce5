"""The record in the file, walked from outside: read-only, beside a daemon that runs or without one; nothing in here
writes, and nothing that the daemon does goes through here.
"""
