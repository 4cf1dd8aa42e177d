"""Brings processes together in MPI that no MPI has started: what mpiexec would tell them.

MPICH asks who started it by PMI, lines of text over a socket whose number is in PMI_FD: which rank
it is, what others have put under a key, and whether all have come to a barrier. A process that the
first rank starts answers, which runs this file by itself: while MPI starts, no thread of Python's
does. Source of the messages: MPICH's src/pmi, PMI version 1.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["PmiServer", "start_server", "told_by"]

MAXES = "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=4096"


class PmiServer:
    """Answers for all ranks of a job, in a thread for each."""

    def __init__(self, size: int, token: str) -> None:
        self.size, self.token = size, token
        self.listener = socket.create_server(("", 0), backlog=max(size, 16))
        self.port = int(self.listener.getsockname()[1])
        self.space = f"cugrad_{secrets.token_hex(8)}"  # MPI calls what it shares by this name
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()
        self.at_barrier = self.barriers = self.present = self.gone = 0

    def run(self) -> None:
        """Until all ranks are gone."""
        threading.Thread(target=self.accept, daemon=True).start()
        with self.changed:
            self.changed.wait_for(lambda: self.gone == self.size)

    def accept(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        """All that one rank asks."""
        with connection, connection.makefile("r", newline="\n") as lines:
            if not hmac.compare_digest(lines.readline().strip().encode(), self.token.encode()):
                return
            with self.changed:
                self.present += 1
            try:
                for line in lines:
                    words = dict(word.partition("=")[::2] for word in line.split())
                    connection.sendall(f"{self.answer(words)}\n".encode())
            except (OSError, ValueError):  # the process is gone
                pass
            with self.changed:
                self.gone += 1
                self.changed.notify_all()

    def answer(self, words: dict[str, str]) -> str:
        """What a rank is told; after an answer that it does not know of, it ends."""
        command = words.get("cmd")
        if command == "put":
            with self.changed:
                self.values[words["key"]] = words.get("value", "")
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            with self.changed:
                value = self.values.get(words["key"])
            if value is None:
                return f"cmd=get_result rc=-1 msg=key_{words['key']}_not_found value=unknown"
            return f"cmd=get_result rc=0 msg=success value={value}"
        if command == "barrier_in":
            self.wait_for_all()
        answers = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": MAXES,
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={self.space}",
            "get_universe_size": f"cmd=universe_size rc=0 size={self.size}",
            "barrier_in": "cmd=barrier_out rc=0",
            "finalize": "cmd=finalize_ack rc=0",
        }
        return answers.get(command or "", f"cmd={command}_result rc=-1 msg=not_here")

    def wait_for_all(self) -> None:
        """Until all ranks have asked for it, or one is gone."""
        with self.changed:
            self.at_barrier += 1
            number = self.barriers
            if self.at_barrier == self.size:
                self.at_barrier, self.barriers = 0, number + 1
                self.changed.notify_all()
            self.changed.wait_for(lambda: self.barriers != number or self.gone)


def start_server(size: int, token: str) -> int:
    """Starts a process that answers for a job; the port at which."""
    (own_in, to_server), (from_server, own_out) = os.pipe(), os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, own_in, 0), (os.POSIX_SPAWN_DUP2, own_out, 1)]
    command = [sys.executable, "-S", "-E", __file__, str(size)]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)
    os.close(own_in)
    os.close(own_out)
    os.write(to_server, f"{token}\n".encode())  # it stays open: its end is that of this process
    with open(from_server) as answers:
        return int(answers.readline())


def main() -> None:
    """The process that answers, until the last rank ends, or the first if some never came."""
    server = PmiServer(int(sys.argv[1]), sys.stdin.readline().strip())
    print(server.port, flush=True)

    def watch() -> None:
        sys.stdin.read()
        if server.present < server.size:
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    server.run()


@contextmanager
def told_by(address: tuple[str, int], token: str, rank: int, size: int) -> Iterator[None]:
    """A block in which MPI is started, and told by a server who it is."""
    connection = socket.create_connection(address)
    connection.sendall(f"{token}\n".encode())
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    number = connection.detach()  # MPI reads from it until the end of the process
    own = {"PMI_FD": str(number), "PMI_RANK": str(rank), "PMI_SIZE": str(size)}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:  # processes that this one starts are no ranks
            del os.environ[name]


if __name__ == "__main__":
    main()
