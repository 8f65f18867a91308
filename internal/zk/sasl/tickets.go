package sasl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// Tickets are fetched ahead of time and shared by all connections of a process, so that a KDC that is away does not
// hurt a connection as long as the tickets are valid. The library cannot be interrupted while it asks KDCs: it runs in
// a goroutine of its own, one for each Kerberos at a time, whose time it limits to some seconds for each KDC, and those
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
	k Kerberos

	mu       sync.Mutex
	services map[string]*ticket // nil for those that there was no ticket for yet
	fetching *fetch             // nil for none
	failed   *fetch             // the last one, if it failed
}

// fetch is one login, and the tickets that were asked for with it.
type fetch struct {
	done chan struct{}
	at   time.Time        // when it was done
	errs map[string]error // by service
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
		w = &wallet{k: k, services: make(map[string]*ticket)}
		wallets.all[k] = w
	}
	return w
}

// retryAfter is how long a failed fetch is the answer to everyone who wants a ticket.
const retryAfter = time.Second

// NewExchange returns an exchange with a server, host:port. It asks a KDC only if there is no valid ticket, and then
// waits for the answer until ctx is done.
func (k Kerberos) NewExchange(ctx context.Context, server string) (Exchange, error) {
	w, service := k.wallet(), k.service(server)
	for {
		w.mu.Lock()
		t := w.services[service]
		if t.valid() {
			w.mu.Unlock()
			return &exchangeGSSAPI{ticket: t}, nil
		}
		if last := w.failed; last != nil && time.Since(last.at) < retryAfter && last.errs[service] != nil {
			w.mu.Unlock()
			return nil, last.errs[service]
		}
		w.services[service] = t // wanted
		f := w.start()
		w.mu.Unlock()
		select {
		case <-f.done:
			if err := f.errs[service]; err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("Kerberos: no ticket for %s yet, as no KDC has answered (%w)", service, ctx.Err())
		}
	}
}

// start starts a fetch, or returns the one that runs. The caller holds w.mu.
func (w *wallet) start() *fetch {
	if w.fetching != nil {
		return w.fetching
	}
	f := &fetch{done: make(chan struct{}), errs: make(map[string]error)}
	w.fetching = f
	services := slices.Collect(maps.Keys(w.services))
	go func() { // ends when the KDCs have answered, or after the library's limits
		got := w.k.fetch(services, f.errs)
		w.mu.Lock()
		defer w.mu.Unlock()
		f.at = time.Now()
		maps.Copy(w.services, got)
		w.fetching, w.failed = nil, nil
		if len(f.errs) > 0 {
			w.failed = f
		}
		close(f.done)
	}()
	return f
}

// fetch logs in and gets tickets for services. It adds the errors to errs.
func (k Kerberos) fetch(services []string, errs map[string]error) map[string]*ticket {
	got := make(map[string]*ticket)
	c, t, err := func() (c *krbClient, t *tgt, err error) {
		defer recoverMalformed(&err)
		return k.login()
	}()
	if c != nil {
		defer c.Destroy() // what renews tickets by itself
	}
	for _, service := range services {
		own := err
		if own == nil {
			got[service], own = func() (found *ticket, err error) {
				defer recoverMalformed(&err)
				return c.ticketFor(t, service)
			}()
		}
		if own == nil && !got[service].valid() {
			own = fmt.Errorf("Kerberos: the ticket for %s has already expired at %s: is this host's clock right?",
				service, got[service].end.Format(time.RFC3339))
		}
		if own != nil {
			delete(got, service)
			errs[service] = own
		}
	}
	return got
}

// Keep renews the tickets for the current servers until ctx is done, at about the half of their life: each time by a
// new login, so that a replaced keytab or credential cache is used. It calls failed for each attempt that fails, with
// when the first of the tickets ends: the zero time if there is none.
func (k Kerberos) Keep(ctx context.Context, servers func() []string, failed func(err error, end time.Time)) {
	w := k.wallet()
	want := func() (services []string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, server := range servers() {
			service := k.service(server)
			services = append(services, service)
			if _, wanted := w.services[service]; !wanted {
				w.services[service] = nil
			}
		}
		// A server that is gone may have no principal any more.
		maps.DeleteFunc(w.services, func(service string, _ *ticket) bool { return !slices.Contains(services, service) })
		return services
	}
	timer := time.NewTimer(w.renewIn(want()))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		services := want()
		w.mu.Lock()
		f := w.start()
		w.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return
		}
		wait := w.renewIn(services)
		if len(f.errs) > 0 {
			end := w.firstEnd(services)
			failed(joined(f.errs), end)
			if wait = retryPause; !end.IsZero() { // without a ticket, each connection tries
				wait = min(wait, time.Until(end)/4)
			}
		}
		timer.Reset(max(wait, retryAfter))
	}
}

// retryPause is the pause after a renewal that has failed, unless the tickets end before.
const retryPause = 30 * time.Second

// renewIn returns when tickets are to be renewed: at 40 to 60 percent of the life of the first that ends, at once if
// one is missing.
func (w *wallet) renewIn(services []string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first time.Duration = -1
	for _, service := range services {
		t := w.services[service]
		if !t.valid() {
			return 0
		}
		life := t.end.Sub(t.begin)
		if wait := time.Until(t.begin.Add(life*2/5 + rand.N(life/5+1))); first < 0 || wait < first {
			first = wait
		}
	}
	return max(0, first)
}

// firstEnd returns when the first of the tickets ends; the zero time if one is missing.
func (w *wallet) firstEnd(services []string) (first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, service := range services {
		t := w.services[service]
		if !t.valid() {
			return time.Time{}
		}
		if first.IsZero() || t.end.Before(first) {
			first = t.end
		}
	}
	return first
}

// joined returns the different errors in one line.
func joined(errs map[string]error) error {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	slices.Sort(all)
	return errors.New(strings.Join(slices.Compact(all), "; "))
}
