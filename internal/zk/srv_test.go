package zk

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"zkelectd/internal/test/zkserver"
)

// dnsStub answers for SRV records of one name, whose targets are hosts with an address on the loopback network.
type dnsStub struct {
	conn net.PacketConn

	mu      sync.Mutex
	targets map[string]uint16 // the port of each host; nil for no such name
	asked   int               // for SRV records
}

const srvName = "_zookeeper._tcp.example."

// newDNS starts a stub, and returns it with a dialer that asks it.
func newDNS(t *testing.T) (*dnsStub, *dialer) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsStub{conn: conn}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	d := Access{}.dialer()
	d.lookup, d.lookupSRV = r.LookupNetIP, r.LookupSRV
	return s, d
}

// set replaces the targets by servers, each as a host of its own.
func (s *dnsStub) set(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = make(map[string]uint16)
	for i, server := range servers {
		_, port, _ := net.SplitHostPort(server)
		n, _ := strconv.ParseUint(port, 10, 16)
		s.targets["zk"+strconv.Itoa(i)+".example."] = uint16(n)
	}
}

func (s *dnsStub) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
		s.answer(&m, m.Questions[0])
		if reply, err := m.Pack(); err == nil {
			s.conn.WriteTo(reply, from)
		}
	}
}

func (s *dnsStub) answer(m *dnsmessage.Message, q dnsmessage.Question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 60}
	_, known := s.targets[q.Name.String()]
	switch {
	case q.Type == dnsmessage.TypeSRV && q.Name.String() == srvName && s.targets != nil:
		s.asked++
		for host, port := range s.targets {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(host), Port: port}})
		}
	case q.Type == dnsmessage.TypeA && known:
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	}
}

// SRV records are looked up for each connection: a session goes on at the servers that they name by then, and is
// closed there.
func TestSRVRecordsAreLookedUpForEachConnection(t *testing.T) {
	t.Parallel()
	e, err := zkserver.StartEnsemble(t.Context(), 3, zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Stop() })
	dns, d := newDNS(t)
	dns.set(e.Servers[0].Addr())
	s := open(t, Options{Servers: []string{"srv+" + srvName}, dialer: d})
	id := s.SessionID()
	dns.set(e.Servers[1].Addr(), e.Servers[2].Addr())
	e.Servers[0].Kill()
	eventually(t, "the session is connected to another server", func() bool { return s.Reconnects() > 0 && s.Connected() })
	if s.SessionID() != id || s.Err() != nil || s.Server() != "srv+"+srvName {
		t.Errorf("session 0x%x at %s, %v", s.SessionID(), s.Server(), s.Err())
	}
	dns.mu.Lock()
	defer dns.mu.Unlock()
	if dns.asked < 2 {
		t.Errorf("looked up %d times", dns.asked)
	}
}

func TestAddressesOfSRVRecords(t *testing.T) {
	t.Parallel()
	dns, d := newDNS(t)
	const server = "srv+" + srvName
	_, err := d.addresses(t.Context(), server)
	contains(t, err, "_zookeeper._tcp.example", "no such host")
	dns.set("a:2181", "b:2182", "c:2181")
	got, err := d.addresses(t.Context(), server)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, []string{"127.0.0.1:2181", "127.0.0.1:2182"}) {
		t.Errorf("%s, %v", got, err)
	}
	// Where one host is not known, the others are used.
	lookup := d.lookup
	d.lookup = func(ctx context.Context, network, host string) ([]netip.Addr, error) {
		if host == "zk1.example" {
			host = "gone.example"
		}
		return lookup(ctx, network, host)
	}
	if got, err := d.addresses(t.Context(), server); err != nil || !slices.Equal(got, []string{"127.0.0.1:2181"}) {
		t.Errorf("%s, %v", got, err)
	}
	dns.set("none")
	d.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "zk0.example"}
	}
	_, err = d.addresses(t.Context(), server)
	contains(t, err, "zk0.example", "no such host")
}
