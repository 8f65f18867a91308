package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zkelectd/internal/status"
)

// A configuration that becomes invalid while the daemon runs does not keep the guard from restarting it after a crash: it
// leads with the last good one, reports that, and applies the next good one.
func TestCrashWithADamagedConfiguration(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]struct {
		do    func(file string) error
		fault string
	}{
		"damaged":   {func(file string) error { return os.WriteFile(file, []byte("nod: {id: z}\nzookeeper: 7\n"), 0o600) }, "nod: is not a setting"},
		"missing":   {os.Remove, "cannot be read: no such file or directory"},
		"too large": {func(file string) error { return os.Truncate(file, 2<<20) }, "is larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			listen := fmt.Sprintf("http: {listen: 'unix:%s'}\n", f.socket("a"))
			f.configure("a", "dc1", 100, listen)
			f.start("a")
			f.until("a leads", leads("a"))
			f.configure("a", "dc1", 70, listen)
			f.reload("a")
			f.until("the reload", func(g status.Group) bool { return len(g.Members) == 1 && g.Members[0].Priority == 70 })

			good := read(f.file("a"))
			if err := damage.do(f.file("a")); err != nil {
				t.Fatal(err)
			}
			term := f.until("a leads", leads("a")).Term
			for range 2 { // the guard keeps the last good configuration
				syscall.Kill(f.daemon("a"), syscall.SIGKILL)
				g := f.until("a leads again, and status has the error", func(g status.Group) bool {
					return leads("a")(g) && g.Term > term && strings.Contains(strings.Join(g.Problems, "\n"), damage.fault)
				})
				if term = g.Term; g.Members[0].Priority != 70 {
					t.Errorf("the configuration that was reloaded last is not the one it runs with:\n%s", g.Table())
				}
			}
			f.logged("a", "this daemon has started, but its configuration is invalid")
			f.logged("a", fmt.Sprintf("file=%s", f.file("a")))
			f.logged("a", damage.fault)
			f.logged("a", `runs_with="the last good configuration"`)
			if _, body := f.ask("a", "/metrics"); !strings.Contains(body, "\nzkelectd_config_last_reload_successful 0\n") {
				t.Errorf("the metrics do not say it:\n%s", body)
			}

			if err := os.WriteFile(f.file("a"), []byte(good), 0o600); err != nil {
				t.Fatal(err)
			}
			f.reload("a")
			f.until("nothing is refused any more", func(g status.Group) bool { return leads("a")(g) && len(g.Problems) == 0 })
			if _, body := f.ask("a", "/metrics"); !strings.Contains(body, "\nzkelectd_config_last_reload_successful 1\n") {
				t.Errorf("the metrics still say that it is refused:\n%s", body)
			}
			f.checkInvariants()
		})
	}
}

// reload has a daemon reload its configuration.
func (f *fleet) reload(id string) { syscall.Kill(f.daemon(id), syscall.SIGHUP) }

// An invalid token file disables the HTTP API until the next restart, but does not end leadership.
func TestCrashWithDamagedTokens(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tokens := filepath.Join(f.dir, "tokens")
	if err := os.WriteFile(tokens, []byte("ops:"+strings.Repeat("x", 40)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	term := f.startLeader("a", fmt.Sprintf("http: {listen: 127.0.0.1:0, token_file: %s}\n", tokens)).Term
	if err := os.WriteFile(tokens, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(f.daemon("a"), syscall.SIGKILL)
	f.until("a leads again, and status has the error", func(g status.Group) bool {
		return leads("a")(g) && g.Term > term && strings.Contains(strings.Join(g.Problems, "\n"), tokens)
	})
	f.logged("a", `runs_with="the configuration file, without the HTTP API"`)
	f.checkInvariants()
}

// The first start refuses a configuration that a restart tolerates.
func TestFirstStartWithADamagedConfiguration(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.configure("a", "dc1", 100, "nod: {}\n")
	f.start("a")
	if code := f.exit("a"); code != 2 {
		t.Errorf("exit status %d", code)
	}
	f.logged("a", "nod: is not a setting")
}
