"""A stand-in Hermes, for `talaria demo` and for tests that need no real agent.

`stand_in.create_stand_in()` is the ASGI app, `stand_in.serve_stand_in()` runs it in the current loop, and
`python -m app.demo` in a process of its own. It keeps everything in memory and opens no connection.
"""
