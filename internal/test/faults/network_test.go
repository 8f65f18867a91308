package faults

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/test/faultproxy"
)

// networkFaults affect the connections between a node and the servers, and between the servers.
var networkFaults = []fault{
	{"daemon cut off from all servers", setMode(true, faultproxy.Refuse)},
	{"a site cut off from all servers", cutSite(faultproxy.Refuse)},
	{"black hole between a site and the servers", cutSite(faultproxy.BlackHole)},
	{"daemon cut off from one server", setMode(false, faultproxy.Refuse)},
	{"black hole between daemon and servers", setMode(true, faultproxy.BlackHole)},
	{"one server, or one address of their name, hangs", setMode(false, faultproxy.Hold)},
	{"half-open connections", setMode(true, faultproxy.HalfOpen)},
	{"slow connections", setMode(true, faultproxy.Slow)},
	{"uneven delays", setMode(true, faultproxy.Jitter)},
	{"connections that send again what was lost", setMode(true, faultproxy.Lossy)},
	{"requests held back, then delivered", setMode(true, faultproxy.HoldToTarget)},
	{"answers held back, then delivered", setMode(true, faultproxy.HoldFromTarget)},
	{"a third of all packets dropped", dropPackets("numgen random mod 100 < 33", "dport", "sport")},
	{"packets to the servers dropped", dropPackets("", "dport")},
	{"packets from the servers dropped", dropPackets("", "sport")},
	{"connections reset", reset},
	{"another session opened at a reconnect", openAnotherSession},
	{"one server partitioned from the others", partition(faultproxy.BlackHole)},
	{"messages to or from one server held back", partition(faultproxy.HoldToTarget)},
	{"uneven delays between servers", partition(faultproxy.Jitter)},
	{"losses between servers", partition(faultproxy.Lossy)},
}

// setModes sets the mode of connections until heal is called.
func setModes(m faultproxy.Mode, proxies ...*faultproxy.Proxy) (heal func()) {
	for _, p := range proxies {
		p.SetMode(m)
	}
	return func() {
		for _, p := range proxies {
			p.SetMode(faultproxy.Pass)
			if m == faultproxy.BlackHole || m == faultproxy.HalfOpen {
				p.Reset(false) // the dropped data is missing from the streams
			}
		}
	}
}

// disturb is setModes with delays by chance, for the modes that have some.
func (f *fleet) disturb(m faultproxy.Mode, proxies ...*faultproxy.Proxy) (heal func()) {
	for _, p := range proxies {
		p.Seed(f.rng.Uint64())
		p.SetDelay(time.Duration(5+f.rng.IntN(195)) * time.Millisecond)
	}
	return setModes(m, proxies...)
}

// serversOf returns the connections of nodes to the servers.
func serversOf(nodes ...*node) (all []*faultproxy.Proxy) {
	for _, n := range nodes {
		all = append(all, n.proxies...)
	}
	return all
}

// setMode sets the mode of a node's connections to one server or all.
func setMode(all bool, m faultproxy.Mode) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		proxies := f.victim().proxies
		if !all {
			i := f.rng.IntN(len(proxies))
			proxies = proxies[i : i+1]
		}
		return f.disturb(m, proxies...), nil
	}
}

// cutSite sets the mode of all connections of a site's nodes.
func cutSite(m faultproxy.Mode) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) { return setModes(m, serversOf(f.siteOf(f.victim())...)...), nil }
}

// reset resets a node's connections.
func reset(f *fleet) (func(), error) {
	for _, p := range f.victim().proxies {
		p.Reset(true)
	}
	return noHeal, nil
}

// openAnotherSession resets a node's connections, and makes some servers or all open a new session when it reconnects.
func openAnotherSession(f *fleet) (func(), error) {
	proxies := f.victim().proxies
	heal := setModes(faultproxy.NewSession, proxies[:1+f.rng.IntN(len(proxies))]...)
	for _, p := range proxies {
		p.Reset(true)
	}
	return heal, nil
}

// partition affects the connections between one server and the other two. Its clients stay connected to it.
func partition(m faultproxy.Mode) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		alone := f.rng.IntN(3)
		var proxies []*faultproxy.Proxy
		for _, pair := range slices.SortedFunc(maps.Keys(f.serverLinks), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
			if pair[0] == alone || pair[1] == alone {
				proxies = append(proxies, f.serverLinks[pair]...)
			}
		}
		return f.disturb(m, proxies...), nil
	}
}

// dropPackets makes the kernel drop packets between a node and all servers: with "dport" those that the node sends, with "sport"
// those that it receives; all of them or a share.
func dropPackets(share string, directions ...string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		var ports []string
		for _, p := range n.proxies {
			ports = append(ports, strconv.Itoa(p.Port()))
		}
		f.tables++
		ports = slices.Compact(ports) // there is one only if the servers have one name
		table := fmt.Sprintf("zkelectd-faults-%d-%d", os.Getpid(), f.tables)
		rules := fmt.Sprintf("table inet %s {\nchain output {\ntype filter hook output priority 0;\n", table)
		for _, d := range directions {
			rules += fmt.Sprintf("tcp %s { %s } %s drop\n", d, strings.Join(ports, ", "), share)
		}
		if err := nft(rules + "}\n}\n"); err != nil {
			return nil, err
		}
		return func() {
			if err := nft("delete table inet " + table + "\n"); err != nil {
				f.t.Error(err)
			}
		}, nil
	}
}

// nft changes the kernel's packet filter.
func nft(rules string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s; the campaign needs root, and the package nftables", err, out)
	}
	return nil
}
