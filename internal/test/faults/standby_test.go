package faults

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/sys/boottime"
)

// orderFile is where the standby of a node listens for orders; leadsFile is there while it leads, with its pid.
func orderFile(dir, node string) string { return filepath.Join(dir, "order-"+node) }
func leadsFile(dir, node string) string { return filepath.Join(dir, "leads-"+node) }

// standby is promotable work. While it leads, it does what a child does. Children that ignore TERM do not answer a demotion, and those with
// processes that have escaped refuse it; others take up to twice as long as they may.
func standby() {
	ledger, node := os.Getenv("LEDGER"), os.Getenv("ZKELECTD_NODE")
	dir := filepath.Dir(ledger)
	os.Remove(orderFile(dir, node))
	listener, err := net.Listen("unix", orderFile(dir, node))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	orders := make(chan net.Conn)
	go func() { // ends with the process
		for {
			if conn, err := listener.Accept(); err == nil {
				orders <- conn
			}
		}
	}()
	var s *ledgerWriter // nil while it does not lead
	for beat := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-beat:
			if s != nil {
				s.work()
			}
		case conn := <-orders:
			text, err := bufio.NewReader(conn).ReadString('\n')
			role, term, _ := strings.Cut(strings.TrimSpace(text), " ")
			switch {
			case err != nil:
			case role == "leader":
				s = newLedgerWriter(ledger, node, term, fmt.Sprintf("%d.%d", boottime.Now().Nanoseconds(), os.Getpid()))
				s.write("start")
				err = os.WriteFile(leadsFile(dir, node), []byte(strconv.Itoa(os.Getpid())), 0o600)
				fmt.Fprintln(conn, "ok")
			case s == nil:
				fmt.Fprintln(conn, "busy")
			case s.shouldBehave(ignoreTerm):
				continue // the connection stays open
			case len(s.escaped) > 0:
				fmt.Fprintln(conn, "busy")
			default:
				s.demote(time.Duration(boottime.Now()%600) * time.Millisecond)
				s = nil
				os.Remove(leadsFile(dir, node))
				fmt.Fprintln(conn, "ok")
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			conn.Close()
		}
	}
}

// demote goes on with the work for a while, then ends it.
func (s *ledgerWriter) demote(takes time.Duration) {
	for over, beat := time.After(takes), time.Tick(10*time.Millisecond); ; {
		select {
		case <-beat:
			s.write("beat")
		case <-over:
			s.write("end")
			return
		}
	}
}

// order gives its standby the order of its environment.
func order() {
	conn, err := net.Dial("unix", orderFile(filepath.Dir(os.Getenv("LEDGER")), os.Getenv("ZKELECTD_NODE")))
	if err == nil {
		_, err = fmt.Fprintln(conn, os.Getenv("ZKELECTD_ROLE"), os.Getenv("ZKELECTD_TERM"))
	}
	answer := ""
	if err == nil {
		answer, err = bufio.NewReader(conn).ReadString('\n')
	}
	if err != nil || answer != "ok\n" {
		fmt.Fprintln(os.Stderr, answer, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// promotion returns the settings that make the work of a node promotable.
func (n *node) promotion() string {
	argv := fmt.Sprintf("{exec: [%s, %s]}", self, orderArgument)
	return fmt.Sprintf(", promote: %s, demote: %s", argv, argv)
}

// leads reports whether a standby of the node leads a group.
func (n *node) leads(g *group, pid int) bool {
	data, err := os.ReadFile(leadsFile(g.file(""), n.id))
	return err == nil && string(data) == strconv.Itoa(pid)
}
