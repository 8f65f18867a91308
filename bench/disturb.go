package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"zkelectd/internal/boottime"
	"zkelectd/internal/cluster"
	"zkelectd/internal/status"
	"zkelectd/internal/test/zkserver"
)

const (
	disturbSpan = 10 * time.Second // of each phase, before its handovers
	slowClients = 1000
	floodRate   = 10_000 // requests a second, as far as the machine allows
	flooders    = 32     // connections
)

// disturbance has the measurements of a leader, with or without a load of HTTP clients.
type disturbance struct {
	least    time.Duration // the shortest remaining lease
	renewals int
	samples  int
	moves    time.Duration // RELEASE to READY, p50
	lost     int           // leaderships that ended unexpectedly
	rate     float64       // responses a second
}

// disturb measures whether HTTP clients disturb the lease: slow clients, which never complete a request, and a flood of requests.
func disturb(ctx context.Context, t *table, binary string, rounds int) error {
	g, err := newGroup(ctx, zkserver.Options{})
	if err != nil {
		return err
	}
	defer g.close()
	ports, err := zkserver.FreePorts(2)
	if err != nil {
		return err
	}
	apis := make(map[string]string)
	for i, id := range []string{"a", "b"} {
		apis[id] = fmt.Sprintf("127.0.0.1:%d", ports[i])
		n, err := g.spawn(binary, id, 6*time.Second, "ZKELECTD_HTTP_LISTEN="+apis[id])
		if err != nil {
			return err
		}
		defer n.kill()
		if err := g.members(ctx, i+1); err != nil {
			return err
		}
	}
	if err := g.publish(ctx, map[string]int{"a": 1}); err != nil {
		return err
	}
	if err := g.leads(ctx, "a"); err != nil {
		return err
	}
	quiet, err := g.measure(ctx, apis, rounds, func(context.Context) float64 { return 0 })
	if err != nil {
		return err
	}
	slow, err := g.measure(ctx, apis, rounds, func(ctx context.Context) float64 { return slowRequests(ctx, apis) })
	if err != nil {
		return err
	}
	flood, err := g.measure(ctx, apis, rounds, func(ctx context.Context) float64 { return floodRequests(ctx, apis) })
	if err != nil {
		return err
	}
	slow.report(t, quiet, fmt.Sprintf("%d slow clients", slowClients))
	flood.report(t, quiet, fmt.Sprintf("%.0f requests/s on /leader", flood.rate))
	return nil
}

// report adds the measurements, compared with those without load.
func (c disturbance) report(t *table, quiet disturbance, what string) {
	ratio := float64(c.least) / float64(quiet.least)
	t.add(what+": least of the lease that was left", ms(c.least), fmt.Sprintf("%.2f of the quiet phase's, %d samples", ratio, c.samples), ">= 0.5", ratio >= 0.5)
	ratio = float64(c.renewals) / float64(quiet.renewals)
	t.add(what+": renewals of the lease", fmt.Sprint(c.renewals), fmt.Sprintf("%.2f of the quiet phase's", ratio), ">= 0.8", ratio >= 0.8)
	t.add(what+": planned handover, p50", ms(c.moves), fmt.Sprintf("%.2f of the quiet phase's", float64(c.moves)/float64(quiet.moves)), "", true)
	t.add(what+": leaderships lost", fmt.Sprint(c.lost), fmt.Sprintf("quiet phase: %d", quiet.lost), "0", c.lost == 0)
}

// measure observes the lease of the leader a, then moves leadership back and forth, while clients runs.
func (g *group) measure(ctx context.Context, apis map[string]string, rounds int, clients func(context.Context) float64) (disturbance, error) {
	busy, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var c disturbance
	wg.Go(func() { c.rate = clients(busy) })
	err := c.watch(ctx, apis["a"])
	if err == nil {
		err = c.move(ctx, g, rounds)
	}
	cancel()
	wg.Wait()
	return c, err
}

// watch polls the remaining lease of the leader on one connection, which is busy enough that the server does not close it as idle.
// A renewal moves the end of the lease.
func (c *disturbance) watch(ctx context.Context, api string) error {
	ctx, cancel := context.WithTimeout(ctx, disturbSpan)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Second}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var end time.Duration
	var term int64
	for c.least = time.Hour; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if c.samples == 0 {
				return fmt.Errorf("the leader at %s has not answered in %s", api, disturbSpan)
			}
			return nil
		}
		requested := boottime.Now()
		d, err := leaderOf(ctx, client, api)
		if err != nil {
			continue // a flood may delay requests, but must not affect the lease
		}
		c.samples++
		if d.Term != term {
			if term != 0 {
				c.lost++
			}
			term = d.Term
		}
		c.least = min(c.least, time.Duration(d.LeaseRemaining))
		if ends := requested + time.Duration(d.LeaseRemaining); ends > end+100*time.Millisecond {
			c.renewals, end = c.renewals+1, ends
		}
	}
}

func leaderOf(ctx context.Context, client *http.Client, api string) (status.Daemon, error) {
	var d status.Daemon
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+api+"/leader", nil)
	if err != nil {
		return d, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return d, err
	}
	defer resp.Body.Close()
	return d, json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&d)
}

func (c *disturbance) move(ctx context.Context, g *group, rounds int) error {
	var gaps []time.Duration
	for i := range 2 * ((rounds + 1) / 2) { // a leads again at the end
		from, to := "a", "b"
		if i%2 == 1 {
			from, to = to, from
		}
		before, err := g.term(ctx)
		if err != nil {
			return err
		}
		if err := g.publish(ctx, map[string]int{to: 1}); err != nil {
			return err
		}
		gap, err := g.gap(ctx, from)
		if err != nil {
			return err
		}
		after, err := g.term(ctx)
		if err != nil {
			return err
		}
		gaps = append(gaps, gap)
		c.lost += int(after - before - 1) // a move is one term
	}
	slices.Sort(gaps)
	c.moves = quantile(gaps, 0.5)
	return nil
}

func (g *group) term(ctx context.Context) (int64, error) {
	path := g.paths.Elected()
	data, stat, err := g.session.Get(ctx, path, false)
	if err != nil {
		return 0, err
	}
	s := cluster.ReadStored[cluster.Elected](path, data, stat, true)
	return s.Record.Term, s.Err
}

// slowRequests runs clients that send a header every half second, and connect again when the server closes the connection.
func slowRequests(ctx context.Context, apis map[string]string) float64 {
	var wg sync.WaitGroup
	for i := range slowClients {
		api := apis[[]string{"a", "b"}[i%2]]
		wg.Go(func() {
			for ctx.Err() == nil {
				slowRequest(ctx, api)
				pause(ctx, time.Second)
			}
		})
	}
	wg.Wait()
	return 0
}

func slowRequest(ctx context.Context, api string) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", api)
	if err != nil {
		return
	}
	defer conn.Close()
	for text := "GET /leader HTTP/1.1\r\n"; ctx.Err() == nil; text = "X-Slow: yes\r\n" {
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
		pause(ctx, 500*time.Millisecond)
	}
}

// floodRequests sends requests at floodRate, and returns the number of responses a second.
func floodRequests(ctx context.Context, apis map[string]string) float64 {
	var answered atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for i := range flooders {
		api := apis[[]string{"a", "b"}[i%2]]
		wg.Go(func() {
			for ctx.Err() == nil {
				sendRequests(ctx, api, &answered)
				pause(ctx, 10*time.Millisecond)
			}
		})
	}
	wg.Wait()
	return float64(answered.Load()) / time.Since(began).Seconds()
}

func sendRequests(ctx context.Context, api string, answered *atomic.Int64) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", api)
	if err != nil {
		return
	}
	defer conn.Close()
	const batch = 10
	reader := bufio.NewReader(conn)
	for next := time.Now(); ctx.Err() == nil; {
		for range batch {
			conn.SetDeadline(time.Now().Add(2 * time.Second))
			if _, err := io.WriteString(conn, "GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				return
			}
			resp, err := http.ReadResponse(reader, nil)
			if err != nil {
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			answered.Add(1)
		}
		// If the machine is too slow for the rate, the missed requests are not made up for.
		next = next.Add(batch * flooders * time.Second / floodRate)
		if late := time.Since(next); late > 0 {
			next = time.Now()
			continue
		}
		pause(ctx, time.Until(next))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
