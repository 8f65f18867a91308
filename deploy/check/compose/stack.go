package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// nodes and services are those of docker-compose.yml, without Grafana.
var (
	nodes    = []string{"n1", "n2", "n3", "n4"}
	services = append([]string{"zk1", "zk2", "zk3", "prometheus"}, nodes...)
)

// stack is a Compose project with its own name.
type stack struct {
	compose []string
	dir     string
	project string
	ids     map[string]string // container ids by service
}

func newStack(compose []string, dir string) *stack {
	return &stack{
		compose: compose, dir: dir, project: fmt.Sprintf("zkelectd-test-%d", os.Getpid()), ids: make(map[string]string),
	}
}

// run runs a command in the directory of docker-compose.yml, and returns its standard output.
func (s *stack) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.dir
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "COMPOSE_PROJECT_NAME="+s.project, "COMPOSE_FILE=docker-compose.yml",
		"COMPOSE_ANSI=never", "COMPOSE_PROGRESS=plain")
	for _, name := range append([]string{"prometheus"}, nodes...) {
		cmd.Env = append(cmd.Env, strings.ToUpper(name)+"_PORT=0") // a free port
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(stdout.String()+stderr.String()))
	}
	return stdout.String(), nil
}

func (s *stack) docker(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, append([]string{"docker"}, args...)...)
}

// up starts all services, and those that differ from the Compose files anew.
func (s *stack) up(ctx context.Context) error {
	if _, err := s.run(ctx, "./secret.sh"); err != nil {
		return err
	}
	if _, err := s.run(ctx, slices.Concat(s.compose, []string{"up", "-d"}, services)...); err != nil {
		return err
	}
	for _, service := range services {
		id, err := s.run(ctx, slices.Concat(s.compose, []string{"ps", "-q", service})...)
		if err != nil {
			return err
		}
		s.ids[service] = strings.TrimSpace(id)
	}
	return nil
}

// runDocumented runs the commands of a section of docs/containers.md, with the names of this project.
func (s *stack) runDocumented(ctx context.Context, section string) error {
	data, err := os.ReadFile(filepath.Join(s.dir, "../docs/containers.md"))
	if err != nil {
		return err
	}
	_, text, found := strings.Cut(string(data), "\n"+section+"\n")
	_, text, shell := strings.Cut(text, "\n```sh\n")
	block, _, closed := strings.Cut(text, "\n```\n")
	if !found || !shell || !closed {
		return fmt.Errorf("docs/containers.md has no commands below %q", section)
	}
	port, err := s.run(ctx, slices.Concat(s.compose, []string{"port", "n1", "7980"})...)
	if err != nil {
		return err
	}
	adapt := strings.NewReplacer("docker compose", strings.Join(s.compose, " "), "127.0.0.1:7981", strings.TrimSpace(port),
		"zkelectd_", s.project+"_", "app-1", s.project+"-app-1", "app-2", s.project+"-app-2", "app-ha:1.0.0", s.project+
			"-app:test",
		"debian:12.11-slim", os.Getenv("ZOOKEEPER_IMAGE"), "-f sidecar", "--build-arg ZKELECTD_IMAGE="+
			os.Getenv("ZKELECTD_IMAGE")+" -f sidecar")
	out, err := s.run(ctx, "sh", "-euc", adapt.Replace(block))
	if err != nil {
		return fmt.Errorf("docs/containers.md, %s: %w\n%s", section, err, out)
	}
	return nil
}

// site disconnects (cut) or reconnects (heal) a site, with the script of docs/containers.md.
func (s *stack) site(ctx context.Context, action, site string) error {
	_, err := s.run(ctx, "./site.sh", action, site)
	return err
}

// stop stops a service, and returns its exit status.
func (s *stack) stop(ctx context.Context, service string) (status int, err error) {
	if _, err := s.run(ctx, slices.Concat(s.compose, []string{"stop", service})...); err != nil {
		return 0, err
	}
	out, err := s.docker(ctx, "inspect", "--format", "{{.State.ExitCode}}", s.ids[service])
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(out, &status)
	delete(s.ids, service)
	return status, err
}

// workLines returns the lines that all children have printed. It is an error if two worked at the same time.
func (s *stack) workLines(ctx context.Context) ([]line, error) {
	var all []line
	for _, node := range nodes {
		id, err := s.run(ctx, "docker", "ps", "-aq", "--no-trunc", "--filter", "label=com.docker.compose.project="+s.project,
			"--filter", "label=com.docker.compose.service="+node)
		if err != nil {
			return nil, err
		}
		log, err := s.docker(ctx, "logs", strings.TrimSpace(id))
		if err != nil {
			return nil, err
		}
		lines, err := parse(log)
		if err != nil {
			return nil, err
		}
		all = append(all, lines...)
	}
	return all, exclusive(all)
}

// work returns the work of a term.
func (s *stack) work(ctx context.Context, term int64) (span, error) {
	lines, err := s.workLines(ctx)
	if err != nil {
		return span{}, err
	}
	for _, t := range terms(lines) {
		if t.term == term {
			return t, nil
		}
	}
	return span{}, fmt.Errorf("no node works in term %d", term)
}

// waitForLeader waits until node, or any node if it is empty, works in the given term or a later one.
func (s *stack) waitForLeader(ctx context.Context, node string, from int64) (found span, err error) {
	err = await(ctx, node+" to work", func() (bool, error) {
		lines, err := s.workLines(ctx)
		if err != nil {
			return false, err
		}
		if all := terms(lines); len(all) > 0 {
			found = all[len(all)-1]
		}
		return found.term > 0 && found.term >= from && (node == "" || node == found.node), nil
	})
	return found, err
}

// probe runs the probe that is the health check of a node.
func (s *stack) probe(ctx context.Context, node, path string) error {
	_, err := s.docker(ctx, "exec", s.ids[node], "/zkelectd", "probe", path)
	return err
}

// waitForProbe waits until a probe succeeds.
func (s *stack) waitForProbe(ctx context.Context, node, path string) error {
	return await(ctx, path+" of "+node, func() (bool, error) { return s.probe(ctx, node, path) == nil, ctx.Err() })
}

// probeFails returns an error unless a probe fails.
func (s *stack) probeFails(ctx context.Context, node, path string) error {
	err := s.probe(ctx, node, path)
	if err == nil {
		return fmt.Errorf("%s succeeds on %s", path, node)
	}
	if !strings.Contains(err.Error(), path+": no: ") {
		return err
	}
	return nil
}

// container is a part of the output of docker inspect.
type container struct {
	Config     struct{ Image, User string }
	State      struct{ Health struct{ Status string } }
	HostConfig struct {
		ReadonlyRootfs              bool
		CapDrop, SecurityOpt        []string
		Memory, NanoCpus, PidsLimit int64
	}
}

func (s *stack) inspect(ctx context.Context, service string) (container, error) {
	out, err := s.docker(ctx, "inspect", s.ids[service])
	if err != nil {
		return container{}, err
	}
	var all []container
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		return container{}, fmt.Errorf("docker inspect of %s: %d containers, %w", service, len(all), err)
	}
	return all[0], nil
}

// checkHardening checks that the containers have the restrictions of the Compose files.
func (s *stack) checkHardening(ctx context.Context) error {
	for service := range s.ids {
		c, err := s.inspect(ctx, service)
		if err != nil {
			return err
		}
		h := c.HostConfig
		switch {
		case !h.ReadonlyRootfs:
			err = errors.New("can write to its root file system")
		case !slices.Equal(h.CapDrop, []string{"ALL"}):
			err = errors.New("has capabilities")
		case !slices.ContainsFunc(h.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, "no-new-privileges") }):
			err = errors.New("can gain privileges")
		case h.Memory == 0 || h.NanoCpus == 0 || h.PidsLimit == 0:
			err = fmt.Errorf("lacks a limit of memory (%d), processors (%d) or processes (%d)", h.Memory, h.NanoCpus,
				h.PidsLimit)
		case c.Config.User == "" || strings.HasPrefix(c.Config.User, "0") || strings.HasPrefix(c.Config.User, "root"):
			err = fmt.Errorf("runs as %q", c.Config.User)
		}
		if err != nil {
			return fmt.Errorf("%s %w", service, err)
		}
	}
	return nil
}

// waitForHealth waits until all containers are healthy.
func (s *stack) waitForHealth(ctx context.Context) error {
	for service := range s.ids {
		err := await(ctx, service+" to be healthy", func() (bool, error) {
			c, err := s.inspect(ctx, service)
			return c.State.Health.Status == "healthy", err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// printState prints the state and the logs of the containers, to explain a failure.
func (s *stack) printState() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, args := range [][]string{{"ps"}, append([]string{"logs", "--no-color", "--tail", "12"}, services...)} {
		out, err := s.run(ctx, slices.Concat(s.compose, args)...)
		fmt.Fprintln(os.Stderr, out)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// remove removes everything, and checks that nothing is left.
func (s *stack) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.docker(ctx, "rm", "--force", s.project+"-app-1", s.project+"-app-2") // left by a documented command that failed
	s.docker(ctx, "rmi", s.project+"-app:test")
	if _, err := s.run(ctx, slices.Concat(s.compose, []string{"--profile", "monitoring", "down", "--volumes",
		"--remove-orphans"})...); err != nil {
		return err
	}
	for _, kind := range []string{"container", "network", "volume"} {
		args := []string{kind, "ls", "--quiet", "--filter", "label=com.docker.compose.project=" + s.project}
		if kind == "container" {
			args = append(args, "--all")
		}
		left, err := s.docker(ctx, args...)
		if err != nil {
			return err
		}
		if left != "" {
			return fmt.Errorf("a %s is left: %s", kind, left)
		}
	}
	return nil
}

// await calls done until it returns true or an error, or ctx ends.
func await(ctx context.Context, what string, done func() (bool, error)) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
