"""Thousands of HTTP exchanges by one thread of epoll, every byte of their answers checked (Linux, Python 3, standard
library only). For bench/serve_soak.py."""
import errno
import json
import random
import resource
import select
import socket
import struct
import time

BIND_ADDRESS_NO_PORT = 24  # IP_BIND_ADDRESS_NO_PORT: the port is chosen when connecting, so that pairs count, not ports
STREAMS_PER_ADDRESS = 800  # a server takes 1000 connections of one client, and ports are few


def allow_connections():
    """A connection is a descriptor: as many as the system lets this process have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def address_of(number):
    """The loopback address from which connection NUMBER comes."""
    at = number // STREAMS_PER_ADDRESS + 1
    return f"127.0.{at // 250}.{at % 250 + 1}"


def post(path, body):
    text = json.dumps(body).encode()
    return b"POST %b HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(text), text)


def get(path):
    return b"GET %b HTTP/1.1\r\nHost: soak\r\n\r\n" % path.encode()


class Exchange:
    """A request and what came of it. Subclasses look at what comes."""

    def __init__(self, request):
        self.request = request
        self.status = 0     # 0: no answer has begun
        self.whole = False  # the answer ended as HTTP wants it
        self.why = ""       # it did not: what happened to the connection
        self.sent_s = self.head_s = self.end_s = 0.0

    def on_data(self, data):
        """The data of one server-sent event."""

    def on_body(self, body):
        """All of a body that is no stream of events."""

    def leaves(self):
        """True: the client goes now. Asked after it connected and after all that was read."""
        return False

    def on_end(self):
        """The connection's next exchange, or None."""


class Connection:
    def __init__(self, loop, exchange, number):
        self.loop, self.exchange, self.number = loop, exchange, number
        self.buffer, self.events = bytearray(), bytearray()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.IPPROTO_IP, BIND_ADDRESS_NO_PORT, 1)
        self.socket.bind((address_of(number), 0))
        self.unsent, self.connected = exchange.request, False
        code = self.socket.connect_ex(("127.0.0.1", loop.port))
        self.mask = select.EPOLLIN | select.EPOLLOUT
        loop.add(self)
        if code not in (0, errno.EINPROGRESS):
            self.over(errno.errorcode[code])

    def ready(self, mask):
        try:
            if mask & select.EPOLLOUT:
                self.send()
            if mask & ~select.EPOLLOUT:
                self.receive()
        except OSError as error:
            self.over(errno.errorcode.get(error.errno, str(error)))
            return
        if self.socket is not None and self.connected and self.exchange.leaves():
            self.leave()

    def send(self):
        if not self.connected:
            code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code != 0:
                raise OSError(code, "")
            self.connected = True
        if self.unsent:
            try:
                self.unsent = self.unsent[self.socket.send(self.unsent):]
            except BlockingIOError:
                pass
            if not self.unsent:
                self.exchange.sent_s = time.monotonic()
        self.want(select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0))

    def want(self, mask):
        if mask != self.mask:
            self.mask = mask
            self.loop.epoll.modify(self.socket.fileno(), mask)

    def receive(self):
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        if not data:
            self.over("closed")
            return
        self.buffer += data
        self.parse()

    def parse(self):
        while self.buffer and self.socket is not None:
            if self.exchange.status == 0:
                end = self.buffer.find(b"\r\n\r\n")
                if end < 0:
                    return
                self.parse_head(bytes(self.buffer[:end]).lower())
                del self.buffer[:end + 4]
            if not (self.parse_chunks() if self.chunked else self.parse_body()):
                return

    def parse_head(self, head):
        self.exchange.status = int(head[9:12])
        self.exchange.head_s = time.monotonic()
        self.chunked = b"\r\ntransfer-encoding: chunked" in head
        at = head.find(b"\r\ncontent-length:")
        self.length = int(head[at + 17:].split(b"\r\n", 1)[0]) if at >= 0 else 0
        self.stays = b"\r\nconnection: close" not in head

    def parse_body(self):
        if len(self.buffer) < self.length:
            return False
        body = bytes(self.buffer[:self.length])
        del self.buffer[:self.length]
        self.exchange.on_body(body)
        self.finish()
        return True

    def parse_chunks(self):
        """True: the response is complete."""
        at, buffer, last = 0, self.buffer, False
        while not last and (line := buffer.find(b"\r\n", at)) >= 0:
            size = int(buffer[at:line], 16)
            if len(buffer) < line + size + 4:
                break
            self.events += buffer[line + 2:line + 2 + size]
            at, last = line + size + 4, size == 0
        del buffer[:at]
        *whole, rest = bytes(self.events).split(b"\n\n")
        self.events = bytearray(rest)
        for event in whole:
            if event.startswith(b"data: "):
                self.exchange.on_data(event[6:])
        if last:
            self.finish()
        return last

    def finish(self):
        """The answer is whole; the connection goes on with the next one."""
        self.exchange.whole, self.exchange.end_s = not self.events, time.monotonic()
        following = self.exchange.on_end()
        if following is None or not self.stays:
            self.loop.remove(self)
            if following is not None:
                self.loop.start(following, self.number)
            return
        self.exchange, self.unsent = following, following.request
        self.send()

    def over(self, why):
        if self.socket is None:
            return
        self.exchange.why, self.exchange.end_s = why, time.monotonic()
        self.loop.remove(self)
        following = self.exchange.on_end()
        if following is not None:
            self.loop.start(following, self.number)

    def leave(self):
        """With a reset, or as the kernel closes a connection."""
        if random.random() < 0.5:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.over("left")


class Loop:
    """Connections to one port of this machine."""

    def __init__(self, port):
        self.port, self.epoll, self.connections = port, select.epoll(), {}

    def start(self, exchange, number=None):
        """On a connection of its own. NUMBER decides on the client's address."""
        return Connection(self, exchange, len(self.connections) if number is None else number)

    def add(self, connection):
        self.connections[connection.socket.fileno()] = connection
        self.epoll.register(connection.socket.fileno(), connection.mask)

    def remove(self, connection):
        del self.connections[connection.socket.fileno()]
        self.epoll.unregister(connection.socket.fileno())
        connection.socket.close()
        connection.socket = None

    def turn(self, timeout_s=0.1):
        for file, mask in self.epoll.poll(timeout_s, 1024):
            connection = self.connections.get(file)
            if connection is not None:
                connection.ready(mask)

    def run(self, timeout_s):
        """Until all connections are over. False: some are not, within so long."""
        end = time.monotonic() + timeout_s
        while self.connections and time.monotonic() < end:
            self.turn()
        return not self.connections
