"""The declared provider: any 202-style job API, described wholly in the configuration.

Whoever writes the configuration says where the job's id, state, result and items stand (JSONPath), what each state
means, and which requests there are (templates with placeholders). What is here turns that into the contract and the
pairs of functions that every other kind has; nothing here reads a configuration file.

`paths` and `templates` read the two small languages, `declaration` holds what was said, `contract` makes the contract
of it, `bodies` reads what comes back, `adapter` pairs requests with their answers.
"""
