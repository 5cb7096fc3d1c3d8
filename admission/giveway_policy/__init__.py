"""The contract between who writes policies and who carries them out: resources, documents, checks.

Nothing here limits, queues or proxies. `loading` and `compiling` turn files into documents,
`documents` says what a proxy gets, `faults` what its author is told.
"""
