"""Anthropic's Message Batches API: the requests travel inline, one results file holds a line for each of them.

A batch has one end, `ended`, which says nothing about its items, and its counts stay at zero until then. What a cancel
or the 24 hours left undone shows in the counts, so the adapter makes words of them. The API knows no idempotency key
and no metadata, so a lost create is found again by count and time only: candidates for a person, never a sure find.

`contract` holds what is promised, `start` checks what a client asks for, `bodies` reads what comes back, `adapter`
pairs requests with their answers.
"""
