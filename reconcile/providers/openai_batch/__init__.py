"""OpenAI's Batch API: an input file is uploaded, a batch is made of it, and up to two files hold what came of it.

A batch that is `completed` says nothing about its items, and one that is `expired` or `cancelled` may hold paid ones:
only the lines of both files tell. The create honours no idempotency key, so a lost one is found again by its input
file, which we upload anew for each operation.

`contract` holds what is promised, `start` checks what a client asks for, `bodies` reads what comes back, `adapter`
pairs requests with their answers.
"""
