"""One provider, one small file: a contract and pairs of pure functions.

No adapter sees another, and none performs a request.
"""
