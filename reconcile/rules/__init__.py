"""The evidence table, a file a group of rows: what each kind of evidence does in each state.

Every rule takes a draft and a piece of evidence and writes what follows into the draft; none keeps anything. Lower
rooms are used by higher ones only: `waiting` and `ending` know nothing of reads, `observing` nothing of creates.
"""
