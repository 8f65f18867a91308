package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A suite is the tests of one package, or some of them.
type suite struct {
	pkg  string   // relative to the module's root
	args []string // for the test binary
	// own runs the tests in a cell, since they kill processes.
	own bool
	// groups makes the cell the root of all control groups, since the tests create some.
	groups bool
	binary string        // built by calibrate
	limit  time.Duration // measured by calibrate
}

// verdict is the result for a mutant.
type verdict int

const (
	survived verdict = iota
	killed
	notCompiled
)

// A bench runs mutants in its own scratch directory.
type bench struct {
	root, dir string
}

// overlay writes the files with which the go command compiles m instead of the original, and returns the flag for it.
func (b *bench) overlay(m mutant) (string, error) {
	src, err := os.ReadFile(filepath.Join(b.root, m.file))
	if err != nil {
		return "", err
	}
	changed := filepath.Join(b.dir, filepath.Base(m.file))
	text := string(src[:m.start]) + m.with + string(src[m.end:])
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(b.root, m.file): changed}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(b.dir, "overlay.json")
	return "-overlay=" + name, os.WriteFile(name, data, 0o600)
}

// errCompile means that a test binary could not be built.
var errCompile = errors.New("does not compile")

// compile builds the tests of a package, with flags for the go command.
func (b *bench) compile(ctx context.Context, pkg string, flags ...string) (string, error) {
	binary := filepath.Join(b.dir, "tests")
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", errCompile, err, out)
	}
	return binary, nil
}

// pass reports whether the tests of s in binary pass with mutant i of a schema; tests that take longer than s.limit do
// not.
func (b *bench) pass(ctx context.Context, binary string, i int, s suite) (passed bool, failed error) {
	if s.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.limit)
		defer cancel()
	}
	args := append([]string{binary, "-test.failfast", "-test.timeout=0"}, s.args...)
	attr := &syscall.SysProcAttr{Setpgid: true}
	if s.own {
		c, err := newCell()
		if err != nil {
			return false, err
		}
		defer func() { failed = errors.Join(failed, c.close()) }()
		args = c.command(args, s.groups)
		c.attr(attr)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = filepath.Join(b.root, s.pkg)
	cmd.Env = append(os.Environ(), "TMPDIR="+b.dir, fmt.Sprintf("MUTANT=%d", i))
	cmd.SysProcAttr = attr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // for processes that outlive the tests and keep the output open
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &exit), errors.Is(err, exec.ErrWaitDelay), ctx.Err() != nil:
		if *verbose {
			fmt.Printf("%s\n", last(string(out), 12))
		}
		return false, nil
	}
	return false, err
}

// last returns the last n lines of s.
func last(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// calibrate builds the suite with the mutants in it, runs it with none of them selected, and derives its limit from the
// time that this takes.
func (b *bench) calibrate(ctx context.Context, sc *schema, s *suite) error {
	binary, err := sc.build(ctx, s.pkg)
	if err != nil {
		return err
	}
	s.binary = binary
	var took time.Duration
	for range 2 { // the second run finds the files in memory
		began := time.Now()
		ok, err := b.pass(ctx, binary, -1, *s)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("the tests of %s fail on the unchanged code: run go test ./%s", s.pkg, s.pkg)
		}
		took = time.Since(began)
	}
	s.limit = 10*time.Second + 6*took
	return nil
}

// try runs the suites in turn on mutant i until one of them fails, and returns which one did.
func (b *bench) try(ctx context.Context, sc *schema, i int, suites []suite) (verdict, string, error) {
	if sc.broken[i] && !sc.outside(i) {
		return notCompiled, "", nil
	}
	for k, s := range suites {
		binary := s.binary
		if sc.outside(i) {
			flag, err := b.overlay(sc.mutants[i])
			if err != nil {
				return survived, "", err
			}
			binary, err = b.compile(ctx, s.pkg, flag)
			if ctx.Err() == nil && errors.Is(err, errCompile) && k == 0 {
				return notCompiled, "", nil
			}
			if err != nil {
				return survived, "", err
			}
		}
		ok, err := b.pass(ctx, binary, i, s)
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return survived, "", err
		}
		if !ok {
			return killed, s.pkg, nil
		}
	}
	return survived, "", nil
}
