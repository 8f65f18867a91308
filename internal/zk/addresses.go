package zk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/sys/nowait"
)

// A name may have several addresses, as that of a headless service has, or that of a host with IPv6 and IPv4. Each
// address is tried like a server of its own: a server that accepts a connection and then hangs must not hide the
// others.

// dialer opens connections to servers. Each connection to a server goes to the address of its name that was tried the
// longest time ago. It is safe for concurrent use.
type dialer struct {
	tls       TLS
	lookup    func(ctx context.Context, network, host string) ([]netip.Addr, error)
	lookupSRV func(ctx context.Context, service, proto, name string) (cname string, targets []*net.SRV, err error)
	connect   DialFunc

	mu    sync.Mutex
	tries int
	tried map[string]map[string]int // of each server, its addresses by the number of the last try
}

// dialer returns a dialer for connections as a says.
func (a Access) dialer() *dialer {
	return &dialer{
		tls: a.TLS, lookup: net.DefaultResolver.LookupNetIP, lookupSRV: net.DefaultResolver.LookupSRV,
		connect: new(net.Dialer).DialContext,
		tried:   make(map[string]map[string]int),
	}
}

// dial opens a connection that costs little while the session is idle.
func (d *dialer) dial(ctx context.Context, network, server string) (net.Conn, error) {
	addresses, err := d.addresses(ctx, server)
	if err != nil {
		return nil, err
	}
	conn, err := d.dialFirst(ctx, network, server, addresses)
	if err != nil {
		return nil, err
	}
	return d.secure(ctx, conn, server)
}

// secure returns a new connection to a server as dial does.
func (d *dialer) secure(ctx context.Context, conn net.Conn, server string) (net.Conn, error) {
	conn = nowait.NewConn(conn)
	if !d.tls.Enabled {
		return conn, nil
	}
	return d.tls.client(ctx, conn, server)
}

// at returns a function that connects to one address of a server. That does not count as a try: to ask an address why
// it has hung up must not use up the turns of the others.
func (d *dialer) at(address string) DialFunc {
	return func(ctx context.Context, network, server string) (net.Conn, error) {
		conn, err := d.connect(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return d.secure(ctx, conn, server)
	}
}

// addresses returns the addresses of a server, host:port, the one that was tried the longest time ago first.
func (d *dialer) addresses(ctx context.Context, server string) ([]string, error) {
	if host, _, err := net.SplitHostPort(server); err == nil {
		if _, err := netip.ParseAddr(host); err == nil {
			return []string{server}, nil
		}
	}
	all, err := d.resolve(ctx, server)
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	all = slices.Compact(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(len(all), maxAddresses)]
	d.mu.Lock()
	defer d.mu.Unlock()
	current := make(map[string]int, len(all))
	for _, address := range all {
		current[address] = d.tried[server][address]
	}
	d.tried[server] = current
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(current[a], current[b]) })
	return all, nil
}

// maxTargets bounds the SRV records that are looked up further, and maxAddresses the addresses of a server that are
// used each time: who answers for its name must not make a connection, or a proof, as long as they like.
const maxTargets, maxAddresses = 64, 64

// resolve looks up the addresses of a server, host:port. Those of all SRV records of a name are the addresses of one
// server.
func (d *dialer) resolve(ctx context.Context, server string) ([]string, error) {
	name, ok := strings.CutPrefix(server, cluster.SRVPrefix)
	if !ok {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, err
		}
		return d.resolveHost(ctx, host, port)
	}
	_, targets, err := d.lookupSRV(ctx, "", "", name)
	var all []string
	for _, t := range targets[:min(len(targets), maxTargets)] {
		found, targetErr := d.resolveHost(ctx, strings.TrimSuffix(t.Target, "."), strconv.Itoa(int(t.Port)))
		if all = append(all, found...); targetErr != nil {
			err = joinLines(err, targetErr)
		}
	}
	if len(all) > 0 { // the others may be found at the next connection
		err = nil
	}
	return all, err
}

// resolveHost looks up the addresses of a host, and adds the port to each.
func (d *dialer) resolveHost(ctx context.Context, host, port string) (all []string, err error) {
	ips, err := d.lookup(ctx, "ip", host)
	for _, ip := range ips {
		all = append(all, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return all, err
}

// dialStagger is how long an address may take before the next one is tried as well.
const dialStagger = 250 * time.Millisecond

// dialFirst returns the first connection that can be opened to one of the addresses.
func (d *dialer) dialFirst(ctx context.Context, network, server string, addresses []string,
) (first net.Conn, err error) {
	type result struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	results, pending := make(chan result), 0
	next := time.NewTimer(0)
	defer next.Stop()
	for first == nil && len(addresses)+pending > 0 {
		var turn <-chan time.Time
		if len(addresses) > 0 {
			turn = next.C
		}
		select {
		case <-turn:
			address := addresses[0]
			addresses, pending = addresses[1:], pending+1
			d.noteTry(server, address)
			go func() { // it ends when ctx does
				conn, err := d.connect(ctx, network, address)
				results <- result{conn, err}
			}()
			next.Reset(dialStagger)
		case r := <-results:
			pending--
			if first = r.conn; r.err != nil {
				err = joinLines(err, r.err)
				next.Reset(0)
			}
		}
	}
	cancel()
	for ; pending > 0; pending-- {
		if r := <-results; r.conn != nil {
			r.conn.Close()
		}
	}
	switch {
	case first != nil:
		return first, nil
	case err == nil:
		return nil, fmt.Errorf("%s has no address", server)
	}
	return nil, err
}

func (d *dialer) noteTry(server, address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tries++; d.tried[server] != nil {
		d.tried[server][address] = d.tries
	}
}

// joinLines joins two errors in one line.
func joinLines(a, b error) error {
	if a == nil {
		return b
	}
	return fmt.Errorf("%w; %w", a, b)
}

// lookupTimeout limits the look-ups of [dialer.visits].
const lookupTimeout = time.Second

// visits returns the servers, and again those with several addresses, so that a connection to each visit reaches every
// address.
func (d *dialer) visits(ctx context.Context, servers []string) []string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	counts := make([]int, len(servers))
	var lookups sync.WaitGroup
	for i, server := range servers {
		lookups.Go(func() {
			addresses, _ := d.addresses(ctx, server) // dial reports the error
			counts[i] = max(1, len(addresses))
		})
	}
	lookups.Wait()
	all := slices.Clone(servers)
	for round := 1; round < slices.Max(append(counts, 0)); round++ {
		for i, server := range servers {
			if counts[i] > round {
				all = append(all, server)
			}
		}
	}
	return all
}

// ServerAddresses returns the addresses of a server, host:port. There are several if its name has several.
func ServerAddresses(ctx context.Context, server string) ([]string, error) {
	all, err := Access{}.dialer().addresses(ctx, server)
	slices.Sort(all)
	if err == nil && len(all) == 0 {
		err = errors.New("its name has no address")
	}
	return all, err
}
