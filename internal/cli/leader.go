package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator/status"
)

func leaderCommand(c *command) {
	var is, strict bool
	c.Use = "leader"
	c.Short = "Print the id of the READY leader; exit 0, 1 if there is none, or 2 on an error"
	c.Long = `Leader prints the id of the READY leader, and exits with 0, with 1 if there is none, and
with 2 on an error.

With --is it prints nothing as text, and exits with 0 if the node (--id, default this host) is the
READY leader, with 1 if not.

ZooKeeper names a leader whose daemon hangs until its session ends. With --strict the node's
own daemon must also confirm within a second that it leads this group, in this term and at this
root, and that its lease is not over; if it does not, the exit status is 1. Without --id or
--root it is asked at http.listen of this host's configuration, else at the address that it has
published, which must not use TLS.`
	output := c.outputFlag()
	config.RegisterNodeName(c.Flags())
	c.Flags().BoolVar(&is, "is", false, "exit 0 if the node is the READY leader, 1 if not")
	c.Flags().BoolVar(&strict, "strict", false, "with --is: ask the leading daemon itself, and exit 1 if it does not "+
		"confirm its lease")
	c.check = func([]string) error {
		named := c.Flags().Changed("id")
		if !is && (named || strict) {
			return errors.New("--id and --strict are for --is")
		}
		if is && !named && os.Getenv("ZKELECTD_NODE_ID") == "" {
			concernsHost(c.Command, "zookeeper.servers") // its id is in the configuration of this host
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		leader, err := g.readyLeader(ctx)
		switch {
		case err != nil:
			return err
		case is && leader.Leader != g.host.Config.Node.ID, leader.Leader == "":
			err = exitError{statusNo, nil}
		case strict:
			err = confirmLeader(ctx, !c.Flags().Changed("id") && !c.Flags().Changed("root"), g, leader)
		case !is && *output != "json":
			fmt.Fprintln(c.OutOrStdout(), printable(leader.Leader))
		}
		if *output != "json" || err != nil && exitStatus(err) != statusNo {
			return err
		}
		shown := shownLeader{Group: g.name, Root: g.paths.Root, Leader: leader.Leader, Site: leader.Site,
			Term: leader.Term, Value: leader.Value}
		if is {
			shown.Node, shown.Leads = g.host.Config.Node.ID, new(err == nil)
		}
		return errors.Join(printJSON(c.OutOrStdout(), shown), err)
	}
}

// shownLeader is the output of leader.
type shownLeader struct {
	Group string `json:"group"`
	Root  string `json:"root"`
	// Leader is the READY leader, of Site and in Term; empty if there is none.
	Leader string `json:"leader,omitempty"`
	Site   string `json:"site,omitempty"`
	Term   int64  `json:"term,omitempty"`
	// Value is what its work publishes.
	Value string `json:"value,omitempty"`
	// Node is the one that --is asks about, and Leads whether it is the leader.
	Node  string `json:"node,omitempty"`
	Leads *bool  `json:"leads,omitempty"`
}

// readyLeader returns the status of the group if it has a READY leader, else a zero status.
func (g group) readyLeader(ctx context.Context) (leader status.Group, err error) {
	snap, err := g.read(ctx)
	if c := snap.Current; c.Readable() && c.Record.State == cluster.CurrentReady {
		leader = status.Of(g.name, g.paths.Root, snap)
	}
	// Without a record that can be read, the answer is not known. No other problem of the group matters.
	return leader, errors.Join(err, snap.Current.Err)
}

// leaderViewTimeout bounds the request to the leader: status is about the group, and must not wait for one host.
const leaderViewTimeout = time.Second

// withLeaderView adds what only the leader knows, by asking it: the remaining time of the lease. ZooKeeper goes on
// naming a leader whose daemon hangs until its session ends, so no answer means that the lease is not confirmed, and no
// more than that.
func withLeaderView(ctx context.Context, name string, g status.Group) status.Group {
	answer, err := askLeader(ctx, name, g)
	switch {
	case errors.Is(err, errNotAsked):
		return g
	case err != nil:
		return g.Unconfirmed(err.Error())
	}
	return g.WithLeaderView(bytes.NewReader(answer))
}

// errNotAsked is the error of [askLeader] if this host cannot ask the leader, so that no answer means nothing.
var errNotAsked = errors.New("this host cannot ask the leader")

// askLeader returns the leader's answer to the probe /leader. A leader that serves TLS (https://) is not asked: a
// command does not know which CA to trust. The address comes from ZooKeeper, so it is used only if the leader's own
// registration has it as well, and redirects are not followed.
func askLeader(ctx context.Context, name string, g status.Group) ([]byte, error) {
	host, port, err := net.SplitHostPort(g.API)
	switch {
	case g.API == "":
		return nil, fmt.Errorf("%w: %s has no http.listen that other hosts can reach", errNotAsked, g.Leader)
	case strings.HasPrefix(g.API, "https://"):
		return nil, fmt.Errorf("%w: the HTTP API of %s uses TLS", errNotAsked, g.Leader)
	case err != nil || port == "0" || g.APIHost == "":
		return nil, fmt.Errorf("%w: the registration of %s does not have the address %s", errNotAsked, g.Leader, g.API)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = g.APIHost
	}
	ctx, cancel := context.WithTimeout(ctx, leaderViewTimeout)
	defer cancel()
	// The name is not that of a daemon with a single group if hosts have given it another one.
	for _, path := range []string{"/v1/groups/" + url.PathEscape(name) + "/leader", "/leader"} {
		answer, code, err := getFromLeader(ctx, "http://"+net.JoinHostPort(host, port)+path, g.APIHost)
		var request *url.Error
		switch {
		case errors.Is(err, errNotAsked):
			return nil, err
		case ctx.Err() != nil:
			return nil, fmt.Errorf("no answer from %s at %s for %s", g.Leader, g.API, leaderViewTimeout)
		case errors.As(err, &request):
			return nil, fmt.Errorf("no answer from %s at %s: %w", g.Leader, g.API, request.Err)
		case code == http.StatusOK || code == http.StatusServiceUnavailable:
			return answer, err
		case code != http.StatusNotFound:
			return nil, fmt.Errorf("%s answers with status %d", g.API, code)
		}
	}
	return nil, fmt.Errorf("the server at %s does not know the group", g.API)
}

// maxLeaderAnswer bounds the answer of a leader, in bytes.
const maxLeaderAnswer = 1 << 16

func getFromLeader(ctx context.Context, target, host string) (body []byte, code int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errNotAsked, err)
	}
	resp, err := leaderClient(host).Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxLeaderAnswer))
	return body, resp.StatusCode, err
}

// confirmLeader returns nil if the daemon that leads confirms that its lease is not over. own is set if the
// configuration of this host is its own.
func confirmLeader(ctx context.Context, own bool, g group, leader status.Group) error {
	h := g.host
	no := func(reason string) error {
		return exitError{statusNo, fmt.Errorf("the lease of %s is not confirmed: %s", printable(leader.Leader),
			printable(reason))}
	}
	confirms := func(answer []byte) error {
		if reason := leader.WithLeaderView(bytes.NewReader(answer)).LeaseUnconfirmed; reason != "" {
			return no(reason)
		}
		return nil
	}
	e, err := endpointOf(h)
	if own && err != nil {
		return exitError{statusError, err}
	}
	if own && e.Addr != "" {
		ctx, cancel := context.WithTimeout(ctx, leaderViewTimeout)
		defer cancel()
		name, file := g.name, "/v1/groups/"+url.PathEscape(g.name)+"/leader"
		if h.Dir == "" {
			name, file = "", "/leader"
		}
		if err := e.Probe(ctx, "/leader", name); err != nil {
			return no(err.Error())
		}
		answer, err := e.Read(ctx, file, maxLeaderAnswer) // the daemon may be of another group, whose term differs
		if err != nil {
			return no(err.Error())
		}
		return confirms(answer)
	}
	answer, err := askLeader(ctx, g.name, leader)
	switch {
	case errors.Is(err, errNotAsked):
		return exitError{statusError, err}
	case err != nil:
		return no(err.Error())
	}
	return confirms(answer)
}

// leaderClient returns a client for the leader on a host. It connects directly, without a proxy.
func leaderClient(host string) *http.Client {
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		return checkLeaderAddress(address, host)
	}}
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// checkLeaderAddress refuses an address that the leader on a host can't have. Loopback addresses have services that
// trust local users, so they are refused unless the leader runs on this host; link-local addresses have a cloud's
// metadata.
func checkLeaderAddress(address, host string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	here, err := os.Hostname()
	if err != nil || (ip.IsLoopback() && host != here) || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return fmt.Errorf("%w: %s is not an address of %s", errNotAsked, ip, host)
	}
	return nil
}
