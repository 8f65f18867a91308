package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

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

// A command line that cannot be meant exits with 2, whatever the command; scripts take 0 and 1 for answers.
func TestWrongCommandLinesExitWithAnError(t *testing.T) {
	t.Parallel()
	status := func(args ...string) int {
		cmd := root()
		refuseUnknown(cmd)
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		return exitStatus(cmd.Execute())
	}
	for _, args := range [][]string{{"statsu"}, {"help", "statsu"}, {"completion", "csh"}, {"policy", "aply"}, {"acl", "aply"}, {"slots", "aply"}, {"move", "a", "b"}, {"probe", "--bogus"}, {"probe", "/metrics"}} {
		if got := status(args...); got != statusError {
			t.Errorf("%q: got %d", args, got)
		}
	}
	all := root()
	refuseUnknown(all)
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		want := statusError
		if cmd.Name() == "exec" {
			want = statusNotRun
		}
		if !cmd.DisableFlagParsing && !cmd.FParseErrWhitelist.UnknownFlags {
			if got := status(slices.Concat(path, []string{"--bogus"})...); got == 0 || got == statusNo || got != want && !cmd.Hidden {
				t.Errorf("%q --bogus: got %d, want %d", path, got, want)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub, append(slices.Clone(path), sub.Name()))
		}
	}
	walk(all, nil)
}

func TestUnknownCommandsNameSimilarOnes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"statsu": `unknown command "statsu" for "zkelectd": did you mean status?`, "xyzzy": `unknown command "xyzzy" for "zkelectd": 'zkelectd --help' lists the commands`,
	} {
		args := strings.Fields(text)
		_, _, err := root().Find(args)
		if got := suggest(root(), args, err); got == nil || got.Error() != want {
			t.Errorf("%s: got %v", text, got)
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
