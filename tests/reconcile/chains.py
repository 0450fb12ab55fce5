"""A whole chain at once, for tests that hold one in the hand."""

from collections.abc import Iterable

from reconcile.chain import Chain, ChainedRow


def verify(rows: Iterable[tuple[ChainedRow, str]], *, head: str | None, length: int | None) -> str | None:
    """None where one operation's rows, each with its stored hash, are whole; else words naming the first bad row.

    `head` and `length` are the last hash and the number of rows as a second place knows them; None: not known.
    """
    chain: Chain | None = None
    for row, stored in rows:
        chain = chain or Chain(row.operation_id)
        fault = chain.take(row.fields(), stored)
        if fault is not None:
            return fault
    return (chain or Chain("the operation")).end(head=head, length=length)
