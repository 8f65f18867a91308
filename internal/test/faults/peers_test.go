package faults

import (
	"fmt"
	"os"
	"strings"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
	"zkelectd/internal/test/faultproxy"
	"zkelectd/internal/test/zkserver"
)

// peerLink is the way from the other nodes to a node, in failsafe mode. A node publishes the address at which it listens, so the kernel
// sends connections to that address to the proxy instead.
type peerLink struct {
	*faultproxy.Proxy
	address string
}

// peerTable is the table of the packet filter that sends connections between nodes through proxies.
func peerTable() string { return fmt.Sprintf("zkelectd-peers-%d", os.Getpid()) }

// linkPeers creates the roots with the ACL that failsafe mode needs, and the proxies between the nodes.
func (f *fleet) linkPeers() {
	for _, g := range f.groups {
		if err := store.Init(f.t.Context(), f.client(f.t.Context()), g.paths, "the campaign"); err != nil {
			f.t.Fatal(err)
		}
	}
	ports, err := zkserver.FreePorts(len(f.nodes))
	if err != nil {
		f.t.Fatal(err)
	}
	var rules strings.Builder
	for i, n := range f.nodes {
		published, behind := fmt.Sprintf("127.0.9.%d", i+1), fmt.Sprintf("127.0.8.%d", i+1) // behind is where the proxy reaches it
		n.peer.address = fmt.Sprintf("%s:%d", published, ports[i])
		if n.peer.Proxy, err = faultproxy.New(fmt.Sprintf("%s:%d", behind, ports[i])); err != nil {
			f.t.Fatal(err)
		}
		fmt.Fprintf(&rules, "ip daddr %s tcp dport %d dnat ip to 127.0.0.1:%d\n", published, ports[i], n.peer.Port())
		fmt.Fprintf(&rules, "ip daddr %s tcp dport %d dnat ip to %s\n", behind, ports[i], n.peer.address)
	}
	const table = "table inet %s {\nchain output {\ntype nat hook output priority -100;\n%s}\n}\n"
	if err := nft(fmt.Sprintf(table, peerTable(), rules.String())); err != nil {
		f.t.Fatal(err)
	}
}

// unlinkPeers removes what linkPeers has created.
func (f *fleet) unlinkPeers() {
	linked := false
	for _, n := range f.nodes {
		if n.peer.Proxy != nil {
			n.peer.Close()
			linked = true
		}
	}
	if !linked {
		return
	}
	if err := nft("delete table inet " + peerTable() + "\n"); err != nil {
		f.t.Error(err)
	}
}

// asks reports whether a number of members must promise, according to the fence.
func asks(snap cluster.Snapshot, n int) bool {
	fs := snap.Fence.Record.Failsafe
	return snap.Fence.Readable() && fs != nil && len(fs.Members) == n
}
