"""The one data path of AF_XDP: everything between packet memory and the four rings, compiled.

sizes, owner   what a frame costs, and who has it
rings          the four rings: peek, reserve, submit, release
calls          system calls, and what each errno of sendto means
lines          the packet table: a line of 64 bytes a frame
pool, table    free frames, and the packet table from Python
books          packets and bytes counted, from where they are taken to where they end
receive        RX into a batch of packets; FILL kept full
transmit       packets into TX, past the kernel, and home through COMPLETION
entry          what Python calls: whole batches in one step
ending         what becomes of frames when a socket is closed
direct         the rings and frames in the hands of the user

Sockets, ports, the engine and the benchmarks use these functions and no others of their own.
"""
