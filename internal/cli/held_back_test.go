package cli

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"

	"zkelectd/internal/cluster"
)

// command returns a command as it is shown for the group.
func (f *fleet) command(command string) string { return cluster.InGroup(command, f.groupName()) }

// typedFor returns the text of a status with the flags of [fleet.run] in its commands.
func (f *fleet) typedFor(text string) string {
	return withConnection(text, []string{"status", "--zk", strings.Join(f.servers, ","), "--root", f.paths.Root})
}

func (f *fleet) groupName() string { return cluster.NameOf(f.paths.Root) }

// exits runs a command that must exit with a status, and returns its output.
func (f *fleet) exits(want int, args ...string) string {
	f.t.Helper()
	out, err := f.run(args...)
	code := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		f.t.Fatal(err)
	}
	if code != want {
		f.t.Errorf("%v: exit status %d, want %d: %s", args, code, want, out)
	}
	return out
}

// exitsWith runs a command that must exit with a status and print a text.
func (f *fleet) exitsWith(code int, want string, args ...string) {
	f.t.Helper()
	if out := f.exits(code, args...); !strings.Contains(out, want) {
		f.t.Errorf("%v: %s, want %q", args, out, want)
	}
}

// policyFile writes a file with a policy, and returns its path.
func (f *fleet) policyFile(name, policy string) string {
	f.t.Helper()
	file := filepath.Join(f.dir, name)
	put(f.t, file, policy)
	return file
}
