package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/work/command"
)

// Target is what a check connects to or runs; at most one field is set. Package config reads it by its tags.
type Target struct {
	// Exec is a command that exits with 0, HTTP a URL that answers 2xx, TCP a host:port that accepts connections.
	Exec []string `yaml:"exec" program:"yes" doc:"{doc} while this command exits with 0. Set at most one of exec, http and tcp; without any no check is made."`
	HTTP string   `yaml:"http" doc:"{doc} while this URL answers 2xx."`
	TCP  string   `yaml:"tcp" doc:"{doc} while this host:port accepts connections."`
}

// Empty reports whether there is nothing to check.
func (t Target) Empty() bool { return len(t.Exec) == 0 && t.HTTP == "" && t.TCP == "" }

// check checks the target once. The error begins with section.
func (t Target) check(ctx context.Context, section string, env []string) error {
	var what string
	var err error
	switch {
	case len(t.Exec) > 0:
		what = "exec " + t.Exec[0]
		_, err = command.Command{Argv: t.Exec, Env: env, MaxErrorText: maxErrorText}.Run(ctx)
	case t.HTTP != "":
		what, err = "http "+shown(t.HTTP), Request(ctx, http.MethodGet, t.HTTP, nil)
	case t.TCP != "":
		what, err = "tcp "+t.TCP, tryTCP(ctx, t.TCP)
	}
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		err = errors.New("no answer in time")
	}
	if err != nil {
		return fmt.Errorf("%s.%s: %w", section, what, err)
	}
	return nil
}

// Watch checks a target repeatedly.
type Watch struct {
	Target
	// Section is the section of the configuration, for errors.
	Section string
	// Interval is the time between two checks; Timeout bounds each.
	Interval, Timeout time.Duration
	// After Rise successful checks in a row the target counts as healthy, after Fall failed ones as unhealthy.
	Rise, Fall int
	// FirstDecides makes the first check alone decide; without it the target counts as healthy at the start.
	FirstDecides bool
	// Limit limits how many checks of all probes run at once. A check's timeout begins when it may run.
	Limit command.Limit
}

// Run calls changed whenever the target becomes healthy (with nil) or unhealthy (with the reason), until ctx ends.
func (w Watch) Run(ctx context.Context, env []string, changed func(error)) {
	healthy, known, inRow := true, !w.FirstDecides, 0
	for {
		if w.Limit.Enter(ctx) != nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, w.Timeout)
		err := w.check(limited, w.Section, env)
		cancel()
		w.Limit.Leave()
		if ctx.Err() != nil {
			return
		}
		switch {
		case !known:
			healthy, known = err == nil, true
			changed(err)
		case (err == nil) == healthy:
			inRow = 0
		default:
			inRow++
			if (healthy && inRow >= w.Fall) || (!healthy && inRow >= w.Rise) {
				healthy, inRow = !healthy, 0
				changed(err)
			}
		}
		if command.Pause(ctx, w.Interval) != nil {
			return
		}
	}
}

// maxResponse bounds how much is read for a score, in bytes.
const maxResponse = 4096

// Score returns the number that is the first word of the output of a command.
func Score(ctx context.Context, argv, env []string) (float64, error) {
	out, err := command.Command{Argv: argv, Env: env, MaxOutput: maxResponse, MaxErrorText: maxErrorText}.Run(ctx)
	if err == nil {
		var n float64
		if n, err = parseNumber(string(out)); err == nil {
			return n, nil
		}
	}
	if ctx.Err() == context.DeadlineExceeded {
		err = errors.New("no answer in time")
	}
	return 0, fmt.Errorf("score.exec %s: %w", argv[0], err)
}

// maxDigits is the largest number that a text of digits may have: up to there a float64 tells all whole numbers apart,
// such as positions in a log.
const maxDigits = 1 << 53

// parseNumber returns the first word of a text as a number, which is limited so that sums and ratios are finite. Digits
// that a float64 would round are refused: two positions in a log that differ must not become equal.
func parseNumber(text string) (float64, error) {
	word, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if fields := strings.Fields(word); len(fields) > 0 {
		word = fields[0]
	}
	n, err := strconv.ParseFloat(word, 64)
	if err != nil || n != n || n > 1e300 || n < -1e300 {
		return 0, fmt.Errorf("%.40q is not a number", word)
	}
	whole, _, _ := strings.Cut(strings.TrimLeft(word, "+-"), ".")
	exact, err := strconv.ParseUint(whole, 10, 64) // fails without any digits
	if strings.Trim(whole, "0123456789") == "" && (exact > maxDigits || errors.Is(err, strconv.ErrRange)) {
		return 0, fmt.Errorf("%.40q would be rounded: scores are exact up to %d", word, int64(maxDigits))
	}
	return n, nil
}
