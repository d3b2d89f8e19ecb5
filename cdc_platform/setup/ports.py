"""Ports of this machine's loopback."""

import random
import socket

HOST = "127.0.0.1"
_BELOW_EPHEMERAL = range(20_000, 32_000)  # the kernel takes ports of outgoing connections from 32768 on
_chosen = random.SystemRandom()


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka does: TIME_WAIT is no owner
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that nobody uses now and that no outgoing connection will take before its server does."""
    for port in _chosen.sample(_BELOW_EPHEMERAL, 200):
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
