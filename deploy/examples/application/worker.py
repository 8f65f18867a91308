#!/usr/bin/env python3
"""An application that runs on all hosts, and works only while the daemon of its host leads.

It needs only the standard library. SQLite stands for the database that all hosts share.
"""
import http.client
import json
import os
import socket
import sqlite3
import sys
import time

SOCKET = os.environ.get("APP_SOCKET", "/run/zkelectd/api.sock")
DATABASE = os.environ.get("APP_DATABASE", "/var/lib/app/app.db")


class LocalDaemon(http.client.HTTPConnection):
    """The HTTP API of the daemon on this host, on its unix socket."""

    def __init__(self):
        super().__init__("localhost", timeout=2)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


def leading_term():
    """Return the term in which this host leads, or None. No answer means no."""
    daemon = LocalDaemon()
    try:
        daemon.request("GET", "/leader")
        answer = json.load(daemon.getresponse())
        return answer["term"] if answer.get("answer") is True else None
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return None
    finally:
        daemon.close()


def open_database():
    db = sqlite3.connect(DATABASE, timeout=10, isolation_level=None)
    db.execute("CREATE TABLE IF NOT EXISTS fence (id INTEGER PRIMARY KEY CHECK (id = 1), term INTEGER NOT NULL)")
    db.execute("INSERT OR IGNORE INTO fence VALUES (1, 0)")
    db.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, term INTEGER NOT NULL, text TEXT NOT NULL)")
    return db


def write(db, term, text):
    """Write with the fencing token: return False if a leader of a newer term has already written.

    Between the question and the write this process can be stopped for any time, so the answer alone proves nothing.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        if db.execute("UPDATE fence SET term = ? WHERE term <= ?", (term, term)).rowcount != 1:
            db.execute("ROLLBACK")
            return False
        db.execute("INSERT INTO orders (term, text) VALUES (?, ?)", (term, text))
        db.execute("COMMIT")
        return True
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def main():
    name = socket.gethostname() if len(sys.argv) < 2 else sys.argv[1]
    db = open_database()
    while True:
        term = leading_term()
        if term is not None and not write(db, term, name):
            print(f"term {term} is over: a newer leader has written", flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
