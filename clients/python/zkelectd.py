"""Work only while the zkelectd daemon of this host leads, under a part of the leader's lease.

    leader = zkelectd.Client(group="billing")

    def work(stop):
        while not stop.is_set():
            if leader.is_leader():
                write(leader.token(), ...)

    while True:
        leader.run_while_leading(work)

The lease ends by the clock: no daemon kills the program. So it must ask is_leader() before each step that no other host
may do, and pass token() to storage that can refuse older ones, because it can be suspended between question and step.

It needs Python 3.7, Linux and the daemon's unix socket, and nothing else.
"""
import http.client
import json
import os
import socket
import threading
import time
from urllib.parse import urlencode

__all__ = ["Client", "Refused"]

_WAIT = 10  # seconds for news
_ANSWER = 2  # seconds for the daemon to answer when it need not wait
_RETRY = 0.1


class Refused(Exception):
    """The daemon refuses the request, such as one for an unknown group."""


def _now():
    """Return CLOCK_BOOTTIME in ns, which goes on while the host is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _Lease:
    def __init__(self, answer, before, last):
        self.id, self.token, self.pid = answer["lease"], answer["token"], os.getpid()
        # before is how many ns before the end the work must stop. It grows with what is left after an extension, but never
        # shrinks: else a lease that ZooKeeper does not extend would be handed out again with ever less time to stop.
        self.fixed, self.before = before is not None, 0 if before is None else int(before * 1e9)
        if last and last.token == self.token:
            self.before = last.before
        # offset is at most what this clock is ahead of the daemon's: they may be in different time namespaces.
        self.offset, self.end = None, 0

    def update(self, answer):
        offset = answer["before"] - answer["boottime_ns"]
        self.offset = offset if self.offset is None else max(self.offset, offset)
        self.end = answer["lease_end_ns"] + self.offset
        if not self.fixed:
            self.before = max(self.before, answer["lease_left_ns"] // 4)

    def left(self):
        end = self.end
        return end - _now()  # the clock is read last


class Stop:
    """Whether the work must stop. It says so before the lease ends; the rest is for the work to return in."""

    def __init__(self, lease):
        self._lease, self._event = lease, threading.Event()

    def is_set(self):
        return self._event.is_set() or self._lease.left() <= self._lease.before

    def set(self):
        self._event.set()

    def wait(self, timeout=None):
        """Wait until the work must stop, or for some seconds. Return is_set()."""
        self._event.wait(timeout)
        return self.is_set()


class Client:
    """Asks the daemon at a unix socket about a group, with its slot as in ingest/3; a daemon with one group needs none.

    stop_before is how many seconds before the end of a lease that is not extended the work must stop: less than half of the
    lease, by default a quarter. Set bound to False if the work goes on in other processes when this one is dead.
    """

    def __init__(self, socket_path="/run/zkelectd/api.sock", group=None, stop_before=None, bound=True):
        self._socket, self._group, self._before, self._bound = socket_path, group, stop_before, bound
        self._running, self._lease, self._last = threading.Lock(), None, None

    def is_leader(self):
        """Say whether work runs whose lease is valid now, by the clock and not by what the daemon has said last."""
        return self.token() is not None

    def token(self):
        """Return the fencing token of the lease that is valid now, or None. It grows with each leadership."""
        lease = self._lease
        if lease is None or lease.pid != os.getpid() or lease.left() <= 0:  # a process that was forked has no lease
            return None
        return lease.token

    def run_while_leading(self, work):
        """Wait until this host leads, call work(stop), and return what it returns. Then another host may lead.

        While no daemon answers, it waits.
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError("work runs already")
        try:
            lease = self._last = self._await()
            stop = Stop(lease)
            threading.Thread(target=self._extend, args=(lease, stop), daemon=True).start()
            self._lease = lease
            try:
                return work(stop)
            finally:
                self._lease = None
                stop.set()
                self._give_back(lease)  # which also ends the thread's request: nobody can extend it any more
        finally:
            self._running.release()

    def _await(self):
        while True:
            try:
                taken = self._take()
            except (Refused, PermissionError):
                raise
            except (OSError, ValueError, http.client.HTTPException):
                time.sleep(_RETRY)
                continue
            if taken:
                return taken

    def _take(self):
        """Return a lease with enough time left, None after a while."""
        answer = self._ask(None, _WAIT)
        if not answer["leading"]:
            return None
        lease, wait = _Lease(answer, self._before, self._last), 0
        try:
            while answer["leading"] and not answer["stop"]:
                lease.update(answer)
                if lease.left() > lease.before * 5 // 4:  # else it might be the rest of one whose offset was less exact
                    return lease
                # At first without a wait: the time before a request that has waited says little.
                answer = self._ask(lease.id, wait)
                wait = _WAIT
        except BaseException:
            self._give_back(lease)
            raise
        self._give_back(lease)
        return None

    def _extend(self, lease, stop):
        """Extend the lease until the work must stop, or has ended."""
        try:
            while not stop.is_set():
                wait = max(0.001, min(_WAIT, (lease.left() - lease.before) / 1e9))
                try:
                    answer = self._ask(lease.id, wait, limit=wait)
                except (Refused, OSError, ValueError, http.client.HTTPException):
                    stop.wait(min(_RETRY, wait))
                    continue
                if answer.get("lease") != lease.id:  # a daemon that has started again does not know it: it ends
                    return
                lease.update(answer)
                if answer["stop"]:
                    return
        finally:
            stop.set()

    def _give_back(self, lease):
        try:
            self._send("DELETE", {"lease": lease.id}, _ANSWER)
        except (Refused, OSError, ValueError, http.client.HTTPException):
            pass  # the others wait until its end

    def _ask(self, lease, wait, limit=None):
        query = {"wait": "%dms" % (wait * 1000), "bound": str(self._bound).lower()}
        if lease:
            query["lease"] = lease
        return self._send("GET", query, limit or wait + _ANSWER)

    def _send(self, method, query, limit):
        if self._group:
            query["group"] = self._group
        connection = _Connection(self._socket, limit)
        before = _now()
        try:
            connection.request(method, "/v1/lease?" + urlencode(query))
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status >= 500:
            raise OSError(answer["error"])
        if response.status >= 400:
            raise Refused(answer["error"])
        answer["before"] = before
        return answer
