package probe

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/command"
)

// Target is what is tried; one of them is set, or none.
type Target struct {
	// Exec is a command that exits with 0, HTTP a URL that answers 2xx, TCP a host:port that accepts connections.
	Exec []string
	HTTP string
	TCP  string
}

// None tells that there is nothing to try.
func (t Target) None() bool { return len(t.Exec) == 0 && t.HTTP == "" && t.TCP == "" }

// try tries once. section goes into the error.
func (t Target) try(ctx context.Context, section string, env []string) error {
	var what string
	var err error
	switch {
	case len(t.Exec) > 0:
		what, err = "exec "+t.Exec[0], tryExec(ctx, t.Exec, env)
	case t.HTTP != "":
		what, err = "http "+t.HTTP, tryHTTP(ctx, t.HTTP)
	case t.TCP != "":
		what, err = "tcp "+t.TCP, tryTCP(ctx, t.TCP)
	}
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("no answer in time")
	}
	if err != nil {
		return fmt.Errorf("%s.%s: %w", section, what, err)
	}
	return nil
}

// Watch tries a target again and again.
type Watch struct {
	Target
	// Section is the part of the configuration that it comes from, for errors.
	Section string
	// Interval separates two tries, Timeout bounds each.
	Interval, Timeout time.Duration
	// Rise and Fall are how many tries in a row turn it to good and to bad.
	Rise, Fall int
	// Unknown has the first try decide alone; without it, it begins as good.
	Unknown bool
}

// Run calls turn with nil or the reason whenever it turns to good or to bad, until ctx is over.
func (w Watch) Run(ctx context.Context, env []string, turn func(error)) {
	good, known, run := true, !w.Unknown, 0
	for {
		limited, cancel := context.WithTimeout(ctx, w.Timeout)
		err := w.try(limited, w.Section, env)
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch {
		case !known:
			good, known = err == nil, true
			turn(err)
		case (err == nil) == good:
			run = 0
		default:
			run++
			if (good && run >= w.Fall) || (!good && run >= w.Rise) {
				good, run = !good, 0
				turn(err)
			}
		}
		if sleep(ctx, w.Interval) != nil {
			return
		}
	}
}

// maxAnswer bounds what is read for a number.
const maxAnswer = 4096

// Measure reads a number: the first word of what the command prints or the URL answers.
func (t Target) Measure(ctx context.Context, section string, env []string) (float64, error) {
	var text string
	var err error
	what := section + ".http " + t.HTTP
	if len(t.Exec) > 0 {
		what = section + ".exec " + t.Exec[0]
		var out []byte
		out, err = command.Command{Argv: t.Exec, Env: env, MaxOutput: maxAnswer, MaxErrorText: maxErrorText}.Run(ctx)
		text = string(out)
	} else {
		text, err = body(ctx, t.HTTP)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	n, err := number(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return n, nil
}

// number is the first word of a text. Sums and ratios of it are numbers, too.
func number(text string) (float64, error) {
	word, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if fields := strings.Fields(word); len(fields) > 0 {
		word = fields[0]
	}
	n, err := strconv.ParseFloat(word, 64)
	if err != nil || n != n || n > 1e300 || n < -1e300 {
		return 0, fmt.Errorf("%.40q is not a number", word)
	}
	return n, nil
}

func body(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return "", fmt.Errorf("answered %s", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return string(data), err
}
