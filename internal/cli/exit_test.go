package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/operator/request"
)

func TestExitStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errDone, statusError},
		{&request.RefusedError{Err: errDone}, statusRefused},
		{fmt.Errorf("no: %w", &request.RefusedError{Err: errDone}), statusRefused},
		{errors.Join(nil, exitError{statusTimedOut, errDone}), statusTimedOut},
		{refuse("no %s", "leader"), statusRefused},
	} {
		if got := exitStatus(c.err); got != c.want {
			t.Errorf("%v: got %d, want %d", c.err, got, c.want)
		}
	}
}

// docs/operations.md has the table of the program.
func TestDocumentedExitStatuses(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(read("../../docs/operations.md"), "| exit status | meaning |\n| --- | --- |\n")
	text, _, _ = strings.Cut(text, "\n\n")
	var want []string
	for _, s := range exitStatuses {
		want = append(want, fmt.Sprintf("| %d | %s |", s.status, s.meaning))
	}
	if text != strings.Join(want, "\n") {
		t.Errorf("docs/operations.md has\n%s\nthe program has\n%s", text, strings.Join(want, "\n"))
	}
}

// A request in many groups has the exit status that all failures share, unless it was carried out in some groups.
func TestExitStatusOfManyGroups(t *testing.T) {
	t.Parallel()
	refused, late := refuse("paused"), exitError{statusTimedOut, errDone}
	for _, c := range []struct {
		errs     []error
		finished int
		want     int
	}{
		{[]error{refused, refused}, 0, statusRefused},
		{[]error{refused, refused}, 1, statusFailed},
		{[]error{refused, late}, 0, statusFailed},
		{[]error{late}, 3, statusTimedOut},
	} {
		r := rollout{finished: c.finished, changes: []*groupChange{{}}}
		for _, err := range c.errs {
			change := &groupChange{}
			change.fail(err)
			r.changes = append(r.changes, change)
		}
		if got := r.failure(); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func TestDurationsHaveDays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "90s": 90 * time.Second, "2": -1, "1w": -1, "d": -1, "1d2": -1, "99999d": -1,
	} {
		var got time.Duration
		err := (*durationValue)(&got).Set(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
}
