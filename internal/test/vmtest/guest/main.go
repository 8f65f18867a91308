// Guest is the program that package vmtest runs as the leader-only work, and in the virtual machine as the agent of the
// test.
//
//	guest beat ADDR NAME     sends "NAME TERM" to ADDR by UDP every 20 ms; it ignores signals that ask it to stop
//	guest become-root ADDR NAME FILE
//	                         the same, and becomes root, which needs a set-user-ID bit, once FILE exists
//	guest hang DEVICE FILE   reads from DEVICE, past the page cache, for ever, once FILE exists
//	guest fence              is a fence agent for machines; its option ip is where package vmtest listens
//	guest agent ADDR         carries out the commands that it gets from ADDR by TCP, a line each
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	var err error
	switch args := append(os.Args[1:], "", "", "", ""); args[0] {
	case "beat":
		err = beat(args[1], args[2], func() {})
	case "become-root":
		err = beat(args[1], args[2], func() {
			if _, err := os.Stat(args[3]); err == nil {
				unix.Setresuid(0, 0, 0)
			}
		})
	case "hang":
		err = hang(args[1], args[2])
	case "fence":
		var status int
		if status, err = fence(); err == nil {
			os.Exit(status)
		}
	case "agent":
		err = agent(args[1])
	default:
		err = fmt.Errorf("unknown command %q", args[0])
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// interval is the time between two beats.
const interval = 20 * time.Millisecond

// beat writes into the ledger, which is outside of the machine, until it is killed. It calls each before each line.
func beat(addr, name string, each func()) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	line := []byte(name + " " + os.Getenv("ZKELECTD_TERM"))
	for range time.Tick(interval) {
		each()
		conn.Write(line) // a ledger that is not there does not stop the work
	}
	return nil
}

// blockSize is the size of a read.
const blockSize = 1 << 20

// hang reads from a disk that does not answer: in the kernel, where no signal reaches it.
func hang(device, file string) error {
	for range time.Tick(interval) {
		if _, err := os.Stat(file); err == nil {
			break
		}
	}
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	memory, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for at := int64(0); ; at += blockSize {
		if _, _, errno := unix.Syscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&memory[0])), blockSize,
			uintptr(at), 0, 0); errno != 0 {
			return errno
		}
	}
}

// agent carries out commands. It answers before each, as a command may stop the machine.
func agent(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		fmt.Fprintln(conn, "ok")
		cmd := exec.Command("/bin/sh", "-c", lines.Text())
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Println("agent:", lines.Text(), err)
		}
	}
	select {} // the machine goes on without its agent
}
