"""AF_XDP for Python: XDP sockets, a network link emulator built on them, and benchmarks that prove both."""
