package zk

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// nameOf returns a dialer that finds the addresses of a name, each on the loopback network.
func nameOf(addresses ...string) *dialer {
	d := Access{}.dialer()
	d.lookup = func(context.Context, string, string) (ips []netip.Addr, err error) {
		for _, address := range addresses {
			ips = append(ips, netip.MustParseAddr(address))
		}
		return ips, nil
	}
	return d
}

// dialBy returns a dialer that takes each name for one address, and connects by connect.
func dialBy(connect DialFunc) *dialer {
	d := nameOf("127.0.0.1")
	d.connect = connect
	return d
}

// newScriptedName starts servers at one port of several addresses. It returns the addresses, and the name with the port.
func newScriptedName(t *testing.T, scripts ...func(*scriptedServer, net.Conn)) (addresses []string, name string, servers []*scriptedServer) {
	t.Helper()
	port := "0"
	for i, script := range scripts {
		address := fmt.Sprint("127.0.0.", 11+i)
		s := newScriptedServerAt(t, net.JoinHostPort(address, port), script)
		_, port, _ = net.SplitHostPort(s.addr)
		addresses, servers = append(addresses, address), append(servers, s)
	}
	return addresses, "zk.test:" + port, servers
}

// A session finds the address of a name that serves, although the others accept connections and hang.
func TestEachAddressOfANameIsTried(t *testing.T) {
	t.Parallel()
	addresses, name, servers := newScriptedName(t, staySilent, staySilent, serve)
	s := open(t, Options{Servers: []string{name}, Timeout: 1500 * time.Millisecond, dialer: nameOf(addresses...)})
	if n := servers[2].conns.Load(); n != 1 || s.SessionID() != 0x1234 {
		t.Errorf("%d connections to the server that serves", n)
	}
	for i, hung := range servers[:2] {
		if n := hung.conns.Load(); n > 1 {
			t.Errorf("%d connections to server %d, which hangs, before each of the others was tried", n, i)
		}
	}
}

// A closer tries each address, although others accept connections and hang.
func TestCloserTriesEachAddress(t *testing.T) {
	t.Parallel()
	addresses, name, servers := newScriptedName(t, staySilent, staySilent, serve)
	d := nameOf(addresses...)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	u := sessionCloser{dial: d.dial, session: 0x1234}
	if err := u.closeAnywhere(ctx, d.visits(ctx, []string{name})); err != nil || servers[2].conns.Load() != 1 {
		t.Error(err)
	}
	if got := d.visits(ctx, []string{name, "10.0.0.1:1", name}); !slices.Equal(got, []string{name, "10.0.0.1:1", name, name, name, name, name}) {
		t.Errorf("visits: %v", got)
	}
}

// The address that was tried the longest time ago comes first, and those that are new before it. An address that does
// not answer delays the next one a little only.
func TestOrderOfAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := nameOf("10.0.0.1", "10.0.0.2", "10.0.0.1", "::ffff:10.0.0.3", "fd00::1")
		var mu sync.Mutex
		var tried []string
		hangs := make(map[string]bool)
		d.connect = func(ctx context.Context, _, address string) (net.Conn, error) {
			mu.Lock()
			tried = append(tried, address)
			mu.Unlock()
			if hangs[address] {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			near, far := net.Pipe()
			far.Close()
			return near, nil
		}
		connect := func() string {
			conn, err := d.dial(t.Context(), "tcp", "zk:2181")
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			return tried[len(tried)-1]
		}
		for range 12 {
			connect()
		}
		for i := 4; i < 12; i++ {
			if tried[i] != tried[i-4] || slices.Contains(tried[i-3:i], tried[i]) {
				t.Fatalf("not in turn: %v", tried)
			}
		}
		hangs[tried[8]], hangs[tried[9]] = true, true
		began := time.Now()
		if got := connect(); got != tried[10] || time.Since(began) != 2*dialStagger {
			t.Errorf("it reached %s after %s, want %s", got, time.Since(began), tried[10])
		}
		if got := connect(); got != tried[11] {
			t.Errorf("the next one is %s, not %s", got, tried[11])
		}
	})
}

// A name with more addresses than are used is no longer way to an answer.
func TestAddressesOfANameAreBounded(t *testing.T) {
	var ips []string
	for i := range 2 * maxAddresses {
		ips = append(ips, fmt.Sprintf("10.0.0.%d", i+1))
	}
	if all, err := nameOf(ips...).addresses(t.Context(), "zk:2181"); err != nil || len(all) != maxAddresses {
		t.Errorf("%d addresses, %v", len(all), err)
	}
}

// serveOnly is serve, but hangs up on what is no connect request, as servers do.
func serveOnly(_ *scriptedServer, c net.Conn) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil || binary.BigEndian.Uint32(head) > maxHandshake {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head))); err == nil {
		c.Write(connectResponse(0x1234, 2*time.Second))
		answerPings(c)
	}
}

// A session reaches the addresses that serve, although another one hangs up and is asked why: these questions go to
// that address only, and do not use up the turns of the others.
func TestAnAddressThatHangsUpDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	addresses, name, servers := newScriptedName(t, hangUpOn("srvr is not executed because it is not in the whitelist.\n"), serveOnly, serveOnly)
	_, port, _ := net.SplitHostPort(name)
	d := nameOf(addresses...)
	d.tries, d.tried[name] = 2, map[string]int{net.JoinHostPort(addresses[1], port): 1, net.JoinHostPort(addresses[2], port): 2}
	s := open(t, Options{Servers: []string{name}, Timeout: 1500 * time.Millisecond, dialer: d})
	if n := servers[1].conns.Load(); n != 1 || s.SessionID() != 0x1234 {
		t.Errorf("%d connections to the server that serves", n)
	}
	if n := servers[2].conns.Load(); n != 0 {
		t.Errorf("%d connections to the third server", n)
	}
}
