"""What must hold in every world, told or random. A rule is a function that gives the words of its violations, in order.

What a rule judges is the daemon's file; what it judges by is what happened outside of the process. The rules that hang
on who was there stand with their worlds: of one client and one provider in `tests/simulation/invariants.py`, of many in
`tests/simulation/histories/rules/`.
"""
