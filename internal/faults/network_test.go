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

	"zkelectd/internal/faultproxy"
)

// networkFaults are what happens between a node and the servers, and between the servers.
var networkFaults = []fault{
	{"daemon cut off from all servers", onLinks(true, faultproxy.Refuse)},
	{"daemon cut off from one server", onLinks(false, faultproxy.Refuse)},
	{"black hole between daemon and servers", onLinks(true, faultproxy.BlackHole)},
	{"half-open connections", onLinks(true, faultproxy.HalfOpen)},
	{"slow connections", onLinks(true, faultproxy.Slow)},
	{"uneven delays", onLinks(true, faultproxy.Jitter)},
	{"connections that send again what was lost", onLinks(true, faultproxy.Lossy)},
	{"requests held back, then delivered", onLinks(true, faultproxy.HoldToTarget)},
	{"answers held back, then delivered", onLinks(true, faultproxy.HoldFromTarget)},
	{"a third of all packets dropped", drop("numgen random mod 100 < 33", "dport", "sport")},
	{"packets to the servers dropped", drop("", "dport")},
	{"packets from the servers dropped", drop("", "sport")},
	{"connections reset", reset},
	{"one server parted from the others", part(faultproxy.BlackHole)},
	{"one server not heard by the others, or deaf", part(faultproxy.HoldToTarget)},
	{"uneven delays between servers", part(faultproxy.Jitter)},
	{"losses between servers", part(faultproxy.Lossy)},
}

func onLinks(all bool, m faultproxy.Mode) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		proxies := f.victim().proxies
		if !all {
			i := f.rng.IntN(len(proxies))
			proxies = proxies[i : i+1]
		}
		for _, p := range proxies {
			p.Seed(f.rng.Uint64())
			p.SetDelay(time.Duration(5+f.rng.IntN(195)) * time.Millisecond)
			p.SetMode(m)
		}
		return func() {
			for _, p := range proxies {
				p.SetMode(faultproxy.Pass)
				if m == faultproxy.BlackHole || m == faultproxy.HalfOpen {
					p.Reset(false) // what was swallowed is missing from the stream
				}
			}
		}, nil
	}
}

func reset(f *fleet) (func(), error) {
	for _, p := range f.victim().proxies {
		p.Reset(true)
	}
	return nothing, nil
}

// part does something to the paths between one server and the other two; its clients stay connected to it.
func part(m faultproxy.Mode) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		alone := f.rng.IntN(3)
		var proxies []*faultproxy.Proxy
		for _, pair := range slices.SortedFunc(maps.Keys(f.between), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
			if pair[0] == alone || pair[1] == alone {
				proxies = append(proxies, f.between[pair]...)
			}
		}
		for _, p := range proxies {
			p.Seed(f.rng.Uint64())
			p.SetDelay(time.Duration(5+f.rng.IntN(195)) * time.Millisecond)
			p.SetMode(m)
		}
		return func() {
			for _, p := range proxies {
				p.SetMode(faultproxy.Pass)
				if m == faultproxy.BlackHole {
					p.Reset(false)
				}
			}
		}, nil
	}
}

// drop has the kernel drop packets between a node and all servers: "dport" those that it sends, "sport" those that are
// sent to it; all of them, or a share.
func drop(share string, directions ...string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		n := f.victim()
		var ports []string
		for _, p := range n.proxies {
			ports = append(ports, strconv.Itoa(p.Port()))
		}
		f.tables++
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
