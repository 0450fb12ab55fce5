"""All SQL. Callers pass values and pure functions; only these rooms see a connection.

`schema` opens and migrates, `writer` commits what waits in one transaction, the other files hold one group of tables
each. Nothing here knows HTTP or a provider.
"""
