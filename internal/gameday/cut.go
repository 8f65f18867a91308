package gameday

import (
	"fmt"
	"net/netip"
	"strings"
)

// Table is the table of nftables with which the path to the servers is cut. Nothing else is in it.
const Table = "zkelectd_gameday"

// Rules returns the rules that cut the path to some servers, in both directions, as input of 'nft -f -'.
func Rules(servers []netip.AddrPort) string {
	var out, in strings.Builder
	for _, s := range servers {
		family := "ip"
		if s.Addr().Unmap().Is6() {
			family = "ip6"
		}
		fmt.Fprintf(&out, "\t\t%s daddr %s tcp dport %d drop\n", family, s.Addr().Unmap().WithZone(""), s.Port())
		fmt.Fprintf(&in, "\t\t%s saddr %s tcp sport %d drop\n", family, s.Addr().Unmap().WithZone(""), s.Port())
	}
	return fmt.Sprintf("table inet %s {\n\tchain to_servers {\n\t\ttype filter hook output priority 0;\n%s\t}\n\tchain from_servers {\n\t\ttype filter hook input priority 0;\n%s\t}\n}\n",
		Table, &out, &in)
}

// Undo is the command that removes the rules. UndoRules, as input of 'nft -f -', also succeeds if there are none.
const (
	Undo      = "nft delete table inet " + Table
	UndoRules = "add table inet " + Table + "\ndelete table inet " + Table + "\n"
)
