// Package probe checks whether a child is ready or alive and whether a host is healthy: by a command, HTTP, TCP or a notification
// from the child. It also measures scores.
package probe

import (
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

// Readiness configures a readiness check; package config reads it by its tags. At most one of the first four fields is set; with none the child is ready at once.
type Readiness struct {
	// Exec is a command that exits with 0 when the child is ready.
	Exec []string `yaml:"exec" program:"yes" doc:"The child is ready when this command exits with 0. Set at most one of exec, http, tcp and notify; without any the child is ready once it has started."`
	// HTTP is a URL that answers 2xx.
	HTTP string `yaml:"http" doc:"The child is ready when this URL answers 2xx."`
	// TCP is a host:port that accepts connections.
	TCP string `yaml:"tcp" doc:"The child is ready when this host:port accepts connections."`
	// Notify waits for READY=1 on a [Socket].
	Notify bool `yaml:"notify" doc:"The child is ready when it sends READY=1 to $NOTIFY_SOCKET (sd_notify)."`
	// Timeout bounds the whole; a single check may take a tenth of it, but at least a second.
	Timeout time.Duration `yaml:"timeout" min:"1ns" default:"20s" doc:"The start of a child that is not ready after this time has failed. The check is repeated ten times a second; one that takes longer than a tenth of this time, and longer than 1s, has failed."`
	// Limit limits how many checks of all probes run at once.
	Limit command.Limit `yaml:"-"`
}

// Wait returns nil when the child is ready, an error with the result of the last check when Timeout has passed, or the error of
// ctx. Exec uses env, and Notify uses socket.
func Wait(ctx context.Context, r Readiness, env []string, socket *Socket) error {
	switch {
	case r.Notify:
		return r.withTimeout(ctx, "notify", func(ctx context.Context) error { return socket.Wait(ctx) })
	case len(r.Exec) > 0:
		return r.poll(ctx, "exec "+r.Exec[0], func(ctx context.Context) error { return tryExec(ctx, r.Exec, env) })
	case r.HTTP != "":
		return r.poll(ctx, "http "+shown(r.HTTP), func(ctx context.Context) error { return tryHTTP(ctx, r.HTTP) })
	case r.TCP != "":
		return r.poll(ctx, "tcp "+r.TCP, func(ctx context.Context) error { return tryTCP(ctx, r.TCP) })
	}
	return nil
}

// withTimeout calls f with Timeout, and adds the name of the check to its error.
func (r Readiness) withTimeout(ctx context.Context, what string, f func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	err := f(limited)
	if err == nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	return fmt.Errorf("the child was not ready within %s (child.ready.%s: %w)", r.Timeout, what, err)
}

// pollInterval is the time between two checks.
const pollInterval = 100 * time.Millisecond

// poll repeats a check until it succeeds or Timeout has passed.
func (r Readiness) poll(ctx context.Context, what string, check func(context.Context) error) error {
	return r.withTimeout(ctx, what, func(ctx context.Context) error {
		var last error
		for {
			if err := r.Limit.Enter(ctx); err != nil {
				return cmp.Or(last, err)
			}
			one, cancel := context.WithTimeout(ctx, max(r.Timeout/10, time.Second))
			err := check(one)
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
	})
}

// maxErrorText bounds the output of a command in an error, which is published in ZooKeeper.
const maxErrorText = 200

func tryExec(ctx context.Context, argv, env []string) error {
	_, err := command.Command{Argv: argv, Env: env, MaxErrorText: maxErrorText}.Run(ctx)
	return err
}

// client does not follow redirects and keeps no connections, so that each check is one request on a new connection.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func tryHTTP(ctx context.Context, target string) error {
	resp, err := get(ctx, target)
	if err != nil {
		return err
	}
	resp.Body.Close()
	return nil
}

// get returns the response of a URL if it reports success. The caller closes its body. Errors do not contain the URL.
func get(ctx context.Context, target string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	var withURL *url.Error
	switch {
	case errors.As(err, &withURL):
		return nil, withURL.Err
	case err != nil:
		return nil, err
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		resp.Body.Close()
		return nil, fmt.Errorf("answered %s", resp.Status)
	}
	return resp, nil
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

// Immediate reports whether the child is ready without any check.
func (r Readiness) Immediate() bool {
	return len(r.Exec) == 0 && r.HTTP == "" && r.TCP == "" && !r.Notify
}
