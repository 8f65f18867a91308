"""The application of the tests, see application in app_test.go."""
import sys
import time

import zkelectd

leader = zkelectd.Client(sys.argv[1], sys.argv[2])
limit, stubborn = int(sys.argv[3]), sys.argv[4] == "true"


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def work(stop):
    token = leader.token() or 0
    first = last = previous = 0
    while stubborn or not first or not stop.is_set():
        at = now()
        if not leader.is_leader():
            break
        if previous and at - previous > limit:
            print("violation", at - previous, flush=True)
        if not first:
            first = at
            print("lead", token, flush=True)
        last = previous = at
        time.sleep(0.001)
    for _ in range(200 if stubborn else 0):
        time.sleep(0.001)
        if leader.is_leader():
            print("violation: the lease is valid again", flush=True)
    print("led", first, last, token, flush=True)


while True:
    leader.run_while_leading(work)
    if leader.is_leader():
        print("violation: without a lease", flush=True)
