package recipes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// network is a switched network of hosts, each of which is a network namespace. The host named h at place i, from 1, has the
// addresses 192.0.2.i and 2001:db8::i on eth0, where clients are, and 10.77.0.i on eth1, through which it reaches ZooKeeper.
type network struct {
	t     *testing.T
	hosts []string

	mu       sync.Mutex
	presence []presence
}

// presence says that a host has got or lost an address.
type presence struct {
	at      string // as ip monitor prints it
	host    string
	address string
	held    bool
}

// lan is the namespace with the switches.
const lan = "lan"

// newNetwork creates the namespaces. Nothing outside of them is changed.
func newNetwork(t *testing.T, hosts ...string) *network {
	t.Helper()
	n := &network{t: t, hosts: hosts}
	n.create(lan)
	n.ip(lan, "link add front type bridge mcast_snooping 0", "link add back type bridge mcast_snooping 0",
		"link set front up", "link set back up", "address add 10.77.0.254/24 dev back")
	for i, host := range hosts {
		n.create(host)
		// The kernel would assign another number as soon as a link connects the two.
		if out, err := exec.Command("ip", "-n", n.namespace(lan), "netns", "set", n.namespace(host), fmt.Sprint(i+1)).CombinedOutput(); err != nil {
			t.Fatalf("ip netns set: %s", out)
		}
		for device, bridge := range map[string]string{"eth0": "front", "eth1": "back"} {
			port := fmt.Sprintf("%s%d", bridge, i+1)
			n.ip(lan, fmt.Sprintf("link add %s type veth peer name %s netns %s", port, device, n.namespace(host)),
				fmt.Sprintf("link set %s master %s up", port, bridge))
		}
		n.ip(host, "link set lo up", "link set eth0 up", "link set eth1 up",
			fmt.Sprintf("address add 192.0.2.%d/24 dev eth0", i+1), fmt.Sprintf("address add 2001:db8::%d/64 dev eth0 nodad", i+1),
			fmt.Sprintf("address add 10.77.0.%d/24 dev eth1", i+1))
	}
	return n
}

func (n *network) create(host string) {
	n.t.Helper()
	name := n.namespace(host)
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		n.t.Fatalf("ip netns add %s: %s", name, out)
	}
	n.t.Cleanup(func() { exec.Command("ip", "netns", "delete", name).Run() })
}

func (n *network) namespace(host string) string {
	return fmt.Sprintf("zkelectd%d-%s", os.Getpid(), host)
}

// in returns the prefix of a command that runs on a host.
func (n *network) in(host string) []string { return []string{"ip", "netns", "exec", n.namespace(host)} }

// command returns the command that runs a program on a host until the end of the test.
func (n *network) command(host string, argv ...string) *exec.Cmd {
	argv = append(n.in(host), argv...)
	return exec.CommandContext(n.t.Context(), argv[0], argv[1:]...)
}

// ip runs commands of ip on a host.
func (n *network) ip(host string, lines ...string) {
	n.t.Helper()
	cmd := exec.Command("ip", "-n", n.namespace(host), "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("ip on %s: %s", host, out)
	}
}

// cut disconnects a host from ZooKeeper (back), from clients (front) or from both, or connects it again.
func (n *network) cut(host string, on bool, bridges ...string) {
	n.t.Helper()
	state := map[bool]string{true: "down", false: "up"}[on]
	for _, bridge := range bridges {
		n.ip(lan, fmt.Sprintf("link set %s%d %s", bridge, slices.Index(n.hosts, host)+1, state))
	}
}

// run calls a function in the namespace of a host. Sockets that it opens stay there.
func (n *network) run(host string, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // without an unlock: the thread ends with the goroutine
		result <- func() error {
			ns, err := os.Open("/run/netns/" + n.namespace(host))
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-result
}

// listen serves a TCP address on a host until the end of the test.
func (n *network) listen(host, address string, serve func(net.Conn)) {
	n.t.Helper()
	var l net.Listener
	if err := n.run(host, func() (err error) { l, err = net.Listen("tcp", address); return err }); err != nil {
		n.t.Fatal(err)
	}
	var connections sync.WaitGroup
	n.t.Cleanup(func() { l.Close(); connections.Wait() })
	connections.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { defer c.Close(); serve(c) })
		}
	})
}

// serveZooKeeper makes a server of this machine available to all hosts, and returns the address.
func (n *network) serveZooKeeper(target string) string {
	n.t.Helper()
	const address = "10.77.0.254:2181"
	ctx, cancel := context.WithCancel(context.Background())
	n.listen(lan, address, func(c net.Conn) {
		server, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer context.AfterFunc(ctx, func() { server.Close(); c.Close() })()
		done := make(chan struct{})
		go func() { io.Copy(server, c); server.Close(); close(done) }()
		io.Copy(c, server)
		c.Close()
		<-done
	})
	n.t.Cleanup(cancel)
	return address
}

// watch records which host has which of the addresses. The kernel puts the changes in all namespaces into one queue, so their order
// is the real one.
func (n *network) watch(addresses ...string) {
	n.t.Helper()
	cmd := n.command(lan, "ip", "-oneline", "-tshort", "monitor", "address", "all-nsid")
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n.record(lines.Text(), addresses)
		}
	}()
	n.t.Cleanup(func() { cmd.Process.Kill(); <-done; cmd.Wait() })
}

// record parses a line such as "[TIME] [nsid 2]Deleted 2: eth0    inet 192.0.2.100/32 scope ...".
func (n *network) record(line string, addresses []string) {
	at, rest, _ := strings.Cut(strings.TrimPrefix(line, "["), "] [nsid ")
	id, rest, ok := strings.Cut(rest, "]")
	var i int
	if _, err := fmt.Sscan(id, &i); !ok || err != nil || i < 1 || i > len(n.hosts) {
		return
	}
	for _, address := range addresses {
		if strings.Contains(rest, " "+address+"/") {
			n.mu.Lock()
			n.presence = append(n.presence, presence{at: at, host: n.hosts[i-1], address: address, held: !strings.HasPrefix(rest, "Deleted")})
			n.mu.Unlock()
		}
	}
}

// holders replays what watch has recorded. It returns the host that has each address now, the hosts that had it, in order, and all
// moments at which two hosts had it.
func (n *network) holders(address string) (now string, all, overlaps []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	held := make(map[string]string) // host -> since
	for _, p := range n.presence {
		if p.address != address {
			continue
		}
		_, had := held[p.host]
		switch {
		case p.held && !had:
			for other, since := range held {
				overlaps = append(overlaps, fmt.Sprintf("%s got %s at %s, and %s has had it since %s", p.host, address, p.at, other, since))
			}
			held[p.host] = p.at
			all = append(all, p.host)
		case !p.held:
			delete(held, p.host)
		}
	}
	for host := range held {
		now += host
	}
	return now, all, overlaps
}

// client asks for something from a host, every 10 ms, such as the name of the host that has an address.
type client struct {
	mu      sync.Mutex
	answers []answer
}

// answer is one answer, or an error.
type answer struct {
	at   time.Time
	text string
	err  error
}

func (n *network) startClient(host string, ask func() (string, error)) *client {
	n.t.Helper()
	c := new(client)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		n.run(host, func() error {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return nil
				case <-tick.C:
					text, err := ask()
					c.mu.Lock()
					c.answers = append(c.answers, answer{at: time.Now(), text: text, err: err})
					c.mu.Unlock()
				}
			}
		})
	}()
	n.t.Cleanup(func() { close(stop); <-done })
	return c
}

// askName returns what a server that was started by serveName answers.
func askName(address string) func() (string, error) {
	return func() (string, error) {
		c, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return "", err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(100 * time.Millisecond))
		name, err := io.ReadAll(c)
		return string(name), err
	}
}

// last returns the newest answer after a moment.
func (c *client) last(after time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) == 0 || c.answers[len(c.answers)-1].at.Before(after) {
		return ""
	}
	return c.answers[len(c.answers)-1].text
}

// gap returns the longest time without an answer since a moment.
func (c *client) gap(since time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest, previous := time.Duration(0), since
	for _, a := range c.answers {
		if a.err == nil && a.at.After(since) {
			longest, previous = max(longest, a.at.Sub(previous)), a.at
		}
	}
	return longest.Round(time.Millisecond)
}

// serveName answers each connection with the name of a host.
func serveName(host string) func(net.Conn) {
	return func(c net.Conn) { io.WriteString(c, host) }
}

// counts returns how often each text was answered since a moment.
func (c *client) counts(since time.Time) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]int)
	for _, a := range c.answers {
		if a.err == nil && a.at.After(since) {
			all[a.text]++
		}
	}
	return all
}
