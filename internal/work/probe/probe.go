// Package probe checks whether a child is ready or alive and whether a host is healthy: by a command, HTTP, TCP or a
// notification from the child. It also measures scores.
package probe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"zkelectd/internal/work/command"
)

// Readiness configures a readiness check; package config reads it by its tags. Without a target and Notify the child
// is ready at once.
type Readiness struct {
	Target `yaml:",squash" doc:"The child is ready"`
	// Notify waits for READY=1 on a [Socket]. There is no target then.
	Notify bool `yaml:"notify" doc:"The child is ready when it has sent READY=1 to $NOTIFY_SOCKET (sd_notify). It excludes exec, http and tcp. Without any of the four the child is ready once it has started."`
	// Timeout bounds the whole; a single check may take a tenth of it, but at least a second.
	Timeout time.Duration `yaml:"timeout" min:"1ns" default:"20s" doc:"The start of a child that is not ready after this time has failed. The check is repeated ten times a second; one that takes longer than a tenth of this time, and longer than 1s, has failed."`
	// Limit limits how many checks of all probes run at once.
	Limit command.Limit `yaml:"-"`
}

// Immediate reports whether the child is ready without any check.
func (r Readiness) Immediate() bool { return r.Empty() && !r.Notify }

// Wait returns nil when the child is ready, an error with the result of the last check when Timeout has passed, or the
// error of ctx. Exec uses env, and Notify uses socket.
func Wait(ctx context.Context, r Readiness, env []string, socket *Socket) error {
	if r.Immediate() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var err error
	if r.Notify {
		if err = socket.Wait(limited); err != nil {
			err = fmt.Errorf("child.ready.notify: %w", err)
		}
	} else {
		err = r.poll(limited, env)
	}
	if err == nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	return fmt.Errorf("the child was not ready within %s (%w)", r.Timeout, err)
}

// pollInterval is the time between two checks.
const pollInterval = 100 * time.Millisecond

// poll repeats the check until it succeeds or ctx ends.
func (r Readiness) poll(ctx context.Context, env []string) error {
	var last error
	for {
		if err := r.Limit.Enter(ctx); err != nil {
			return cmp.Or(last, err)
		}
		one, cancel := context.WithTimeout(ctx, max(r.Timeout/10, time.Second))
		err := r.check(one, "child.ready", env)
		cancel()
		r.Limit.Leave()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil && last != nil {
			return last // this check was cut short, so its error says nothing
		}
		last = err
		if command.Pause(ctx, pollInterval) != nil {
			return err
		}
	}
}

// maxErrorText bounds the output of a command in an error, which is published in ZooKeeper.
const maxErrorText = 200

// client does not follow redirects and keeps no connections, so that each request is one on a new connection.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Request sends a request to a URL, with a body of JSON unless that is nil. It returns an error, which does not
// contain the URL, unless the answer is 2xx.
func Request(ctx context.Context, method, target string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if withURL, ok := errors.AsType[*url.Error](err); ok {
		return withURL.Err
	}
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

// shown returns a URL without its user and its query, which may be secret: the results of probes are published.
func shown(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "(a URL that cannot be parsed)"
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}

func tryTCP(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
