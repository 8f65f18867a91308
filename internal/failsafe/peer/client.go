package peer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Client asks other daemons. Its connections stay open between requests, so that a round takes one round trip. It is
// safe for concurrent use. The caller must close it.
type Client struct {
	node   string
	http   *http.Client
	dialer net.Dialer

	mu     sync.Mutex
	dialed map[string]string // the addresses that names led to when they were last reached
}

// Limits of the connections. Servers close a connection that is idle for a minute.
const (
	maxPeerConns = 4
	idleTimeout  = 50 * time.Second
)

// NewClient returns a client for the daemon with that node id.
func NewClient(node string) *Client {
	c := &Client{node: node, dialed: make(map[string]string)}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext: c.dial, MaxIdleConnsPerHost: maxPeerConns, MaxConnsPerHost: maxPeerConns, IdleConnTimeout: idleTimeout,
			DisableCompression: true, MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close closes the idle connections. No request may be under way.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// lookupTimeout is how long a name server may take before the address that the name has led to counts: a round does not
// last much longer.
const lookupTimeout = 150 * time.Millisecond

// dial connects to an address. Name servers may be lost together with ZooKeeper, and then mostly say nothing at all, so
// it falls back to where the name has led before.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	before, known := c.dialed[address]
	c.mu.Unlock()
	if known && !c.resolves(ctx, address) {
		if conn, err := c.dialer.DialContext(ctx, network, before); err == nil {
			return conn, nil
		}
	}
	conn, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialed[address] = conn.RemoteAddr().String()
	return conn, nil
}

// resolves reports whether the name in an address is known to a name server, or is an IP address.
func (c *Client) resolves(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err == nil {
		_, err = cmp.Or(c.dialer.Resolver, net.DefaultResolver).LookupHost(ctx, host)
	}
	return err == nil
}

// Ask sends messages to the daemon with the node id to at an address, host:port, and returns an answer for each.
// The error is why there are none.
func (c *Client) Ask(ctx context.Context, kind Kind, to, address string, messages []Message) ([]Answer, error) {
	r := request{V: version, Kind: kind, From: c.node, To: to, Nonce: newNonce()}
	for _, m := range messages {
		r.Messages = append(r.Messages, sealed{Group: m.Group, Body: m.Body,
			Seals: seal(m.Secrets, r.question(m.Group, m.Body)...)})
	}
	got, err := c.post(ctx, address, r)
	if err != nil {
		return nil, err
	}
	if len(got.Messages) != len(messages) {
		return nil, fmt.Errorf("%s has answered %d of %d messages", address, len(got.Messages), len(messages))
	}
	all := make([]Answer, len(messages))
	for i, m := range messages {
		all[i] = r.open(r.Messages[i], got.Messages[i], m.Secrets)
	}
	return all, nil
}

// open verifies an answer.
func (r request) open(asked, got sealed, secrets [][]byte) Answer {
	switch {
	case got.Reason != "":
		return Answer{Err: &RefusedError{got.Reason}}
	case !verify(secrets, got.Seals, r.answer(asked, got.Body)...):
		return Answer{Err: ErrForged}
	}
	return Answer{Body: got.Body}
}

func (c *Client) post(ctx context.Context, address string, r request) (response, error) {
	var got response
	body, err := json.Marshal(r)
	if err != nil {
		return got, err
	}
	if len(body) > maxBody || len(r.Messages) > maxMessages {
		return got, fmt.Errorf("the request of %d messages and %d bytes is too large", len(r.Messages), len(body))
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+Path, bytes.NewReader(body))
	if err != nil {
		return got, fmt.Errorf("%q is not an address: %w", address, err)
	}
	post.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(post)
	if err != nil {
		return got, plain(address, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	switch {
	case err != nil:
		return got, plain(address, err)
	case len(data) > maxBody:
		return got, fmt.Errorf("%s has answered with more than %d bytes", address, maxBody)
	case answer.StatusCode != http.StatusOK:
		var refused sealed
		json.Unmarshal(data, &refused) // another program may answer there
		return got, fmt.Errorf("%s has answered %d: %s", address, answer.StatusCode,
			printable(cmp.Or(refused.Reason, http.StatusText(answer.StatusCode))))
	}
	if err := json.Unmarshal(data, &got); err != nil || got.V != version {
		return got, fmt.Errorf("%s has not answered like a zkelectd of this version", address)
	}
	return got, nil
}

// plain removes the URL from an error, and names the address.
func plain(address string, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s has not answered in time: %w", address, err)
	}
	return fmt.Errorf("%s does not answer: %w", address, err)
}
