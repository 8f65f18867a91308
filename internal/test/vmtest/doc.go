// Package vmtest tests in virtual machines, with -vmtest.real: Debian's kernel in QEMU with zkelectd in it, and
// ZooKeeper and the ledger of the work outside. A watchdog device (an i6300esb) resets a host whose work could outlive
// its lease (docs/watchdog-device.md), and a candidate in another machine fences such a host (docs/fencing.md). The
// package contains only tests, and the program that runs in the machine.
package vmtest
