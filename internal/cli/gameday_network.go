package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cutTable is the table of nftables with which the path to the servers is cut. Nothing else is in it.
const cutTable = "zkelectd_gameday"

// undoCut is the command that removes the rules. undoCutRules, as input of 'nft -f -', also succeeds if there are none.
const (
	undoCut      = "nft delete table inet " + cutTable
	undoCutRules = "add table inet " + cutTable + "\ndelete table inet " + cutTable + "\n"
)

// cutRules returns the rules that cut the path to some servers, in both directions, as input of 'nft -f -'.
func cutRules(servers []netip.AddrPort) string {
	var out, in strings.Builder
	for _, s := range servers {
		family := "ip"
		if s.Addr().Unmap().Is6() {
			family = "ip6"
		}
		fmt.Fprintf(&out, "\t\t%s daddr %s tcp dport %d drop\n", family, s.Addr().Unmap().WithZone(""), s.Port())
		fmt.Fprintf(&in, "\t\t%s saddr %s tcp sport %d drop\n", family, s.Addr().Unmap().WithZone(""), s.Port())
	}
	return fmt.Sprintf("table inet %s {\n\tchain to_servers {\n\t\ttype filter hook output priority 0;\n%s\t}\n"+
		"\tchain from_servers {\n\t\ttype filter hook input priority 0;\n%s\t}\n}\n", cutTable, &out, &in)
}

// networkCut cuts this host's path to the ZooKeeper servers.
type networkCut struct {
	rules    string
	watchdog *exec.Cmd // removes the rules if this process does not
}

// undoMargin is how long after the planned end the watchdog of a cut removes it.
const undoMargin = 5 * time.Second

// newNetworkCut returns the cut for the servers of a configuration.
func newNetworkCut(ctx context.Context, servers []string) (*networkCut, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, fmt.Errorf("the drill network needs nft, as in the package nftables: %w", err)
	}
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	var all []netip.AddrPort
	for _, server := range servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("server %s: %w", server, err)
		}
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		for _, ip := range found {
			all = append(all, netip.AddrPortFrom(ip, uint16(number)))
		}
	}
	return &networkCut{rules: cutRules(all)}, nil
}

// hold cuts the path for d, or until ctx ends.
func (c *networkCut) hold(ctx context.Context, d time.Duration) error {
	if err := c.begin(d); err != nil {
		return err
	}
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	}
	return c.end()
}

// begin cuts the path. Whatever becomes of this process, it is restored after d and a margin.
func (c *networkCut) begin(d time.Duration) error {
	seconds := strconv.FormatFloat((d + undoMargin).Seconds(), 'f', 3, 64)
	c.watchdog = exec.Command("sh", "-c", "sleep "+seconds+"; "+undoCut+" 2>/dev/null")
	c.watchdog.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C or the end of the terminal does not end it
	if err := c.watchdog.Start(); err != nil {
		return fmt.Errorf("cannot start the process that undoes the cut, so nothing was cut: %w", err)
	}
	if err := nft(c.rules, "-f", "-"); err != nil {
		c.stopWatchdog()
		return fmt.Errorf("nothing was cut: %w", err)
	}
	return nil
}

// end restores the path. It may be called again.
func (c *networkCut) end() error {
	if c.watchdog == nil {
		return nil
	}
	if err := nft(undoCutRules, "-f", "-"); err != nil {
		return fmt.Errorf("the path to the servers may still be cut: run '%s' (a process does so in a few seconds): %w", undoCut, err)
	}
	c.stopWatchdog()
	return nil
}

func (c *networkCut) stopWatchdog() {
	_ = syscall.Kill(-c.watchdog.Process.Pid, syscall.SIGKILL) // its own process group; it may have ended
	_ = c.watchdog.Wait()
	c.watchdog = nil
}

// nft runs nft with an input.
func nft(input string, args ...string) error {
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return fmt.Errorf("nft %s: %s", strings.Join(args, " "), bytes.TrimSpace(out))
	}
	return err
}
