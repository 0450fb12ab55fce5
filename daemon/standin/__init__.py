"""The stand-in provider: somebody else's API, scripted, so that users and tests can put their agents through it.

Here belongs a provider's side of the wire, written from the provider's own documents: its jobs as a pure world with
the time handed in (account.py, jobs.py, items.py, deliveries.py; world.py for the OpenAI calls, anthropic_calls.py for
those on Message Batches), its scenarios as data (scenarios.py), its bodies and errors, one aiohttp face for each shape
(openai_face.py, anthropic_face.py), the sender of its webhooks. One server answers all shapes: their paths differ.

Here does not belong anything of our own reading of a provider: no adapter, no contract, no verdict is imported, or
both sides of a test would share one mistake. Only the pure signature schemes are shared with the daemon; the tests
hold those to other people's verifiers.
"""
