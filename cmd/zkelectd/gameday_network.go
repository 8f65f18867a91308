package main

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

	"zkelectd/internal/gameday"
)

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
	return &networkCut{rules: gameday.Rules(all)}, nil
}

// begin cuts the path. Whatever becomes of this process, it is restored after d and a margin.
func (c *networkCut) begin(d time.Duration) error {
	seconds := strconv.FormatFloat((d + undoMargin).Seconds(), 'f', 3, 64)
	c.watchdog = exec.Command("sh", "-c", "sleep "+seconds+"; "+gameday.Undo+" 2>/dev/null")
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
	if err := nft(gameday.UndoRules, "-f", "-"); err != nil {
		return fmt.Errorf("the path to the servers may still be cut: run '%s' (a process does so in a few seconds): %w", gameday.Undo, err)
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
