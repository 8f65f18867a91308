package fencer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/sys/secretfile"
	"zkelectd/internal/work/command"
	"zkelectd/internal/work/workenv"
)

// The exit statuses of an agent's action status.
const (
	statusOn  = 0
	statusOff = 2
)

// statusTries is how often an agent is asked whether a node is off, after it has switched it off, and statusPause the
// time between.
const (
	statusTries = 3
	statusPause = time.Second
)

// runAgent switches a node off and then asks whether it is, if the agent can say so.
func (l *Level) runAgent(ctx context.Context, t Target, run Runner) error {
	c, err := l.call(t.Node)
	if err != nil {
		return err
	}
	// This changes nothing, so it needs no lease. run may keep only the beginning of the output, which is no XML.
	meta, metaErr := l.metadata(ctx, Run)
	r, err := c.act(ctx, run, "off")
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return err
	}
	if metaErr == nil && !meta.has("status") {
		return nil
	}
	for i := 0; ; i++ {
		r, err := c.act(ctx, run, "status")
		switch {
		case err != nil:
			return fmt.Errorf("after action=off, action=status failed: %w", err)
		case r.Code == statusOff:
			return nil
		case i+1 < statusTries:
			if err := command.Pause(ctx, statusPause); err != nil {
				return err
			}
		case r.Code == statusOn:
			return errors.New("action=off succeeded, but action=status says that the node is still on")
		default:
			return fmt.Errorf("action=off succeeded, but action=status cannot tell whether the node is off: %w", r.check())
		}
	}
}

// call is an agent with the options for one node.
type call struct {
	path    string
	options map[string]string
	secrets []string
}

// call returns the agent's call for a node.
func (l *Level) call(node string) (call, error) {
	own, known := l.Nodes[node]
	if !known {
		return call{}, fmt.Errorf("%s has no entry for the node %s", l.key("nodes"), node)
	}
	path, err := l.path()
	if err != nil {
		return call{}, err
	}
	c := call{path: path, options: maps.Clone(l.Options)}
	if c.options == nil {
		c.options = make(map[string]string)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Secrets)) {
		value, err := readSecret(l.key("secrets"), l.Secrets[name])
		if err != nil {
			return call{}, err
		}
		c.options[name], c.secrets = value, append(c.secrets, value)
	}
	maps.Copy(c.options, own)
	return c, nil
}

// key returns the configuration key of a setting of the level.
func (l *Level) key(name string) string { return l.Setting + "." + name }

// agentDir is where distributions install agents. It may not be in $PATH.
const agentDir = "/usr/sbin"

// path returns the path of the agent.
func (l *Level) path() (string, error) {
	path, err := exec.LookPath(l.Agent)
	if err != nil && !strings.Contains(l.Agent, "/") {
		path, err = exec.LookPath(filepath.Join(agentDir, l.Agent))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %s is not installed, or cannot be executed: %w", l.key("agent"), l.Agent,
			errors.Unwrap(err))
	}
	return path, nil
}

// readSecret returns the only line of a file.
func readSecret(key, file string) (string, error) {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	systemd := dir != "" && !strings.Contains(file, "/")
	if systemd {
		file = filepath.Join(dir, file)
	}
	data, err := secretfile.Read(key, file, secretfile.ForbiddenMode(systemd))
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" || strings.ContainsAny(text, "\n\r\x00") {
		return "", fmt.Errorf("%s: %s must contain one line", key, file)
	}
	return text, nil
}

// act runs the agent with an action.
func (c call) act(ctx context.Context, run Runner, action string) (Result, error) {
	var input bytes.Buffer
	fmt.Fprintf(&input, "action=%s\n", action)
	for _, name := range slices.Sorted(maps.Keys(c.options)) {
		fmt.Fprintf(&input, "%s=%s\n", name, c.options[name])
	}
	r, err := run(ctx, command.Command{Argv: []string{c.path}, Env: workenv.Clean(os.Environ()), Input: input.Bytes()})
	for _, secret := range c.secrets { // an agent may print what it was given
		r.Output = strings.ReplaceAll(r.Output, secret, "(not shown)")
		if err != nil && strings.Contains(err.Error(), secret) {
			err = errors.New(strings.ReplaceAll(err.Error(), secret, "(not shown)"))
		}
	}
	return r, err
}
