"""The subject itself: what is true of an operation, and the one road by which it changes.

Here belong the state machine, the contracts and adapters of the providers, the store, the one client that sends, and
the workers. Nothing here listens, reads configuration files, prints, or knows of a command line.
"""
