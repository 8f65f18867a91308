package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"zkelectd/internal/guard"
	"zkelectd/internal/work/workenv"
)

// Order tells promotable work its role: with a command, or with a POST to a URL. One of them is set.
type Order struct {
	// Setting is the section of the configuration, for errors.
	Setting string
	Exec    []string
	HTTP    string
}

// Empty reports whether there is no order.
func (o Order) Empty() bool { return len(o.Exec) == 0 && o.HTTP == "" }

// errNotOver is the error of an order that was cut short: what it has asked for may still happen.
var errNotOver = errors.New("it was not answered")

// give gives the order to the work. The guard runs a command under the lease, and none of its processes is left when give returns. An
// error that is errNotOver means that the work may or may not have got the order, or may still get it.
func (o Order) give(ctx context.Context, w *Worker, f workenv.Fencing, role string) error {
	f.Role = role
	var err error
	if len(o.Exec) > 0 {
		err = o.run(ctx, w.opt.Guard, workenv.Build(os.Environ(), f, w.opt.Spec.Env))
	} else {
		err = o.post(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.Setting, err)
	}
	return nil
}

func (o Order) run(ctx context.Context, g Guard, env []string) error {
	h, err := g.Start(guard.Spec{Argv: o.Exec, Env: env, Capture: true})
	if err != nil {
		return fmt.Errorf("%s cannot be started: %w", o.Exec[0], err)
	}
	select {
	case <-h.Dead():
	case <-ctx.Done():
		h.Kill()
		<-h.Dead()
		return fmt.Errorf("%s %w in time", o.Exec[0], errNotOver)
	}
	if h.Status() == guard.StatusSuccess {
		return nil
	}
	text := ""
	if out := strings.TrimSpace(h.Output()); out != "" {
		text = ": " + out
	}
	return fmt.Errorf("%s %s%s", o.Exec[0], h.Status(), text)
}

// orderClient follows no redirects and keeps no connections: each order is one request on a new connection.
var orderClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (o Order) post(ctx context.Context, f workenv.Fencing) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.HTTP, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := orderClient.Do(req)
	var withURL *url.Error
	switch {
	case errors.As(err, &withURL): // the URL may be secret
		return fmt.Errorf("%w: %w", errNotOver, withURL.Err)
	case err != nil:
		return fmt.Errorf("%w: %w", errNotOver, err)
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the work has answered %s", resp.Status)
	}
	return nil
}
