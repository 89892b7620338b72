"""Runs a command in a network of its own, in which ports that it takes for granted lead to a cluster.

    fixed_ports.py PORT=HOST:PORT[,HOST:PORT...] [...] -- COMMAND [ARGUMENT ...]

Tools whose tests know one address only, such as localhost:15672, are run so on any machine: the ports
exist in a network namespace that has nothing but a loopback interface, and connections to them are
carried to the given addresses in turn, outside of it. Needs root, or user namespaces.
"""

import ctypes
import fcntl
import itertools
import os
import socket
import struct
import sys
import threading

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
CHUNK_BYTES = 65536


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def parse(arguments):
    """The ports with the addresses that they lead to, and the command."""
    at = arguments.index("--")
    pairs = [argument.split("=", 1) for argument in arguments[:at]]
    ports = {int(port): [address(one) for one in to.split(",")] for port, to in pairs}
    return ports, arguments[at + 1 :]


def enter_own_network():
    libc = ctypes.CDLL(None, use_errno=True)
    namespaces = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWUSER | CLONE_NEWNET
    if libc.unshare(namespaces) != 0:
        raise OSError(ctypes.get_errno(), "no network namespace of its own: run this as root")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def pump(source, sink):
    try:
        while data := source.recv(CHUNK_BYTES):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def carry(client, to):
    with client:
        try:
            server = socket.create_connection(to)
        except OSError:
            return
        with server:
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            pump(client, server)
            back.join()


def serve(listener, addresses):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=carry, args=(client, next(addresses)), daemon=True).start()


def main():
    ports, command = parse(sys.argv[1:])
    outside, inside = socket.socketpair()
    child = os.fork()
    if child == 0:
        outside.close()
        enter_own_network()
        listeners = [socket.create_server(("127.0.0.1", port)) for port in ports]
        socket.send_fds(inside, [b"!"], [listener.fileno() for listener in listeners])
        inside.recv(1)
        os.execvp(command[0], command)
    inside.close()
    said, fds, _, _ = socket.recv_fds(outside, 1, len(ports))
    if said:
        for fd, to in zip(fds, ports.values()):
            arguments = (socket.socket(fileno=fd), itertools.cycle(to))
            threading.Thread(target=serve, args=arguments, daemon=True).start()
        outside.send(b"!")
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
