"""AF_XDP: packet memory, rings, sockets, ports, packet views, and errors that explain."""
