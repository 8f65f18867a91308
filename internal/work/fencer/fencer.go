// Package fencer switches nodes off: with a command, or with a fence agent of ClusterLabs, which it also asks whether
// that would work. It decides nothing about leadership, and reads no configuration file.
package fencer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"zkelectd/internal/work/command"
	"zkelectd/internal/work/workenv"
)

// Config says how nodes are fenced. The zero value fences none.
type Config struct {
	// Levels are tried in order until one succeeds.
	Levels []Level
	// Timeout bounds each level.
	Timeout time.Duration
}

// Level is one way to fence nodes: a command, or an agent.
type Level struct {
	// Setting is the configuration key of the level, for errors.
	Setting string
	Command []string
	Agent   string
	// Options are those of the agent for all nodes, Nodes has those of each. Secrets are the files with the values of
	// others.
	Options, Secrets map[string]string
	Nodes            map[string]map[string]string
}

// Target is the node to fence, and who it was.
type Target struct {
	Group   string `json:"group"`
	Node    string `json:"node"`
	Host    string `json:"host,omitempty"`
	Site    string `json:"site,omitempty"`
	Address string `json:"address,omitempty"`
	// Term is the last one that the node held; 0 if it is not known.
	Term int64 `json:"term,omitempty"`
	// By is the node, or the operator, that fences it.
	By string `json:"by"`
}

// Result is how a program ended by itself.
type Result struct {
	Code   int
	Output string
}

// Runner runs a program until it ends or ctx does; then nothing of it runs any more. It returns an error if the program
// could not be started, or did not end by itself. The output may be only the beginning.
type Runner func(ctx context.Context, c command.Command) (Result, error)

// Enabled reports whether nodes are fenced at all.
func (c Config) Enabled() bool { return len(c.Levels) > 0 }

// killSlack is how long it may take until what has timed out is dead.
const killSlack = time.Second

// Limit returns how long fencing one node may take.
func (c Config) Limit() time.Duration { return time.Duration(len(c.Levels)) * (c.Timeout + killSlack) }

// FenceNode fences a node. It returns what has done so. Without an error the node is certainly off, if the command or
// the agent says the truth.
func (c Config) FenceNode(ctx context.Context, t Target, run Runner) (by string, err error) {
	var failed []string
	for i := range c.Levels {
		l := &c.Levels[i]
		err := c.bounded(ctx, func(ctx context.Context) error { return l.fenceNode(ctx, t, run) })
		if err == nil {
			return l.Name(), nil
		}
		failed = append(failed, l.Name()+": "+err.Error())
		if ctx.Err() != nil {
			break
		}
	}
	if len(failed) == 0 {
		return "", errors.New("nothing is configured that could fence it")
	}
	return "", errors.New(strings.Join(failed, "; "))
}

// bounded calls do with a context that ends after the timeout of a level.
func (c Config) bounded(ctx context.Context, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := do(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("was cut short")
	case limited.Err() != nil:
		return fmt.Errorf("not done within %s", c.Timeout)
	}
	return err
}

// Name names the level for people.
func (l *Level) Name() string {
	if l.Agent != "" {
		return filepath.Base(l.Agent)
	}
	return l.Command[0]
}

func (l *Level) fenceNode(ctx context.Context, t Target, run Runner) error {
	if l.Agent != "" {
		return l.runAgent(ctx, t, run)
	}
	input, err := json.Marshal(t)
	if err != nil {
		return err
	}
	r, err := run(ctx, command.Command{Argv: l.Command, Env: append(workenv.Clean(os.Environ()), t.env()...),
		Input: append(input, '\n')})
	if err != nil {
		return err
	}
	return r.check()
}

// env returns the target as environment variables.
func (t Target) env() []string {
	vars := []string{"ZKELECTD_FENCE_GROUP=" + t.Group, "ZKELECTD_FENCE_NODE=" + t.Node, "ZKELECTD_FENCE_BY=" + t.By}
	for name, value := range map[string]string{"HOST": t.Host, "SITE": t.Site, "ADDRESS": t.Address} {
		vars = append(vars, "ZKELECTD_FENCE_"+name+"="+value)
	}
	if t.Term != 0 {
		vars = append(vars, "ZKELECTD_FENCE_TERM="+strconv.FormatInt(t.Term, 10))
	}
	for i, v := range vars { // another host chose these texts
		vars[i] = strings.ReplaceAll(v, "\x00", "")
	}
	return vars
}

// maxText bounds the output of a program in an error.
const maxText = 200

// check returns an error unless the program has succeeded.
func (r Result) check() error {
	if r.Code == 0 {
		return nil
	}
	return fmt.Errorf("exited with status %d%s", r.Code, r.text())
}

// text returns the output for an error: one short line.
func (r Result) text() string {
	text := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(r.Output, "?"),
		func(c rune) bool { return c < ' ' || c == 0x7f || c == ' ' }), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	if text == "" {
		return ""
	}
	return ": " + text
}
