package sasl

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
	"golang.org/x/sync/singleflight"
)

// Tickets are fetched ahead of time and shared by all connections of a process, so that a KDC that is away does not
// hurt a connection as long as the tickets are valid. The library cannot be interrupted while it asks KDCs: it runs in
// a goroutine of its own, one for each service at a time, whose time it limits to some seconds for each KDC, and those
// that wait for it have limits of their own.

// ticket is one for a service, with its session key.
type ticket struct {
	ticket     messages.Ticket
	key        types.EncryptionKey
	begin, end time.Time
	client     types.PrincipalName
	realm      string
	service    string
}

// ticketMargin is how long a ticket must still be valid to be used.
const ticketMargin = time.Second

func (t *ticket) valid() bool { return t != nil && time.Until(t.end) > ticketMargin }

// wallet has the tickets that were got with one Kerberos.
type wallet struct {
	k       Kerberos
	fetches singleflight.Group // by service

	mu      sync.Mutex
	tickets map[string]*ticket // the last one for each service
}

// wallets are those of this process.
var wallets = struct {
	mu  sync.Mutex
	all map[Kerberos]*wallet
}{all: make(map[Kerberos]*wallet)}

func (k Kerberos) wallet() *wallet {
	wallets.mu.Lock()
	defer wallets.mu.Unlock()
	w := wallets.all[k]
	if w == nil {
		w = &wallet{k: k, tickets: make(map[string]*ticket)}
		wallets.all[k] = w
	}
	return w
}

// NewExchange returns an exchange with a server, host:port. It asks a KDC only if there is no valid ticket, and then
// waits for the answer until ctx is done.
func (k Kerberos) NewExchange(ctx context.Context, server string) (Exchange, error) {
	w, service := k.wallet(), k.service(server)
	w.mu.Lock()
	t := w.tickets[service]
	w.mu.Unlock()
	if !t.valid() {
		var err error
		if t, err = w.fetch(ctx, service); err != nil {
			return nil, err
		}
	}
	return &exchangeGSSAPI{ticket: t}, nil
}

// fetch gets a ticket for a service, also if there is a valid one, or waits for one that is being fetched.
func (w *wallet) fetch(ctx context.Context, service string) (*ticket, error) {
	// It ends when the KDCs have answered, or after the library's limits.
	fetched := w.fetches.DoChan(service, func() (any, error) {
		t, err := w.k.fetch(service)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tickets[service] = t
		}
		return t, err
	})
	select {
	case r := <-fetched:
		return r.Val.(*ticket), r.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("Kerberos: no ticket for %s yet, as no KDC has answered (%w)", service, ctx.Err())
	}
}

// fetch logs in and gets a ticket for a service.
func (k Kerberos) fetch(service string) (found *ticket, err error) {
	defer recoverMalformed(&err)
	c, t, err := k.login()
	if err != nil {
		return nil, err
	}
	defer c.Destroy() // what renews tickets by itself
	if found, err = c.ticketFor(t, service); err == nil && !found.valid() {
		err = fmt.Errorf("Kerberos: the ticket for %s has already expired at %s: is this host's clock right?",
			service, found.end.Format(time.RFC3339))
	}
	return found, err
}

// Keep renews the tickets for the current servers until ctx is done, at about the half of their life: each time by a
// new login, so that a replaced keytab or credential cache is used. It calls failed for each attempt that fails, with
// when the first of the tickets ends: the zero time if there is none.
func (k Kerberos) Keep(ctx context.Context, servers func() []string, failed func(err error, end time.Time)) {
	w := k.wallet()
	wait, _ := w.due(servers())
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		var errs []string
		all := servers()
		for _, server := range all {
			if _, err := w.fetch(ctx, k.service(server)); err != nil {
				errs = append(errs, err.Error())
			}
		}
		if ctx.Err() != nil {
			return
		}
		wait, end := w.due(all)
		if len(errs) > 0 {
			slices.Sort(errs)
			failed(errors.New(strings.Join(slices.Compact(errs), "; ")), end)
			if wait = retryPause; !end.IsZero() { // without a ticket, each connection tries
				wait = min(wait, time.Until(end)/4)
			}
		}
		timer.Reset(max(wait, minPause))
	}
}

// retryPause is the pause after a renewal that has failed, unless the tickets end before. No pause is shorter than
// minPause.
const (
	retryPause = 30 * time.Second
	minPause   = time.Second
)

// due returns when tickets are to be renewed, at 40 to 60 percent of the life of the first that ends, and when that
// ends: at once and the zero time if one is missing.
func (w *wallet) due(servers []string) (wait time.Duration, end time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first *ticket
	for _, server := range servers {
		t := w.tickets[w.k.service(server)]
		if !t.valid() {
			return 0, time.Time{}
		}
		if first == nil || t.end.Before(first.end) {
			first = t
		}
	}
	if first == nil {
		return 0, time.Time{}
	}
	life := first.end.Sub(first.begin)
	return max(0, time.Until(first.begin.Add(life*2/5+rand.N(life/5+1)))), first.end
}
