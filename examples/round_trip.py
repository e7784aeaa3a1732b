"""How long it takes to open a TCP connection, which is one round trip: what ping would tell, without ping.

On a host: python3 examples/round_trip.py peer 8000 5
"""

import socket
import sys
import time

host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

for _ in range(count):
    began = time.monotonic()
    try:
        with socket.create_connection((host, port), timeout=10):
            print(f"{(time.monotonic() - began) * 1000:.2f} ms", flush=True)
    except OSError as error:
        print(f"no answer: {error}", flush=True)
