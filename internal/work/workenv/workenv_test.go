package workenv

import (
	"slices"
	"strings"
	"testing"
)

// Values that systemd might not read as plain text are refused.
func TestValuesOfAnEnvironmentFile(t *testing.T) {
	fine := Fencing{Node: "n-1.example", Site: "Zürich (west), no. 3", Group: "a@b", Term: "1795335767", Root: "/teams/a@b"}
	if err := fine.Check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"a\nLD_PRELOAD=x", "a\rb", "a\x00b", "a\tb", "a\x1b[31mb", "a\x7fb", "a\u0085b", "a\u2028b", "a\u202eb", "a\ufeffb", "\xff", `a"b`, "a'b", "a`b", "a$b", `a\b`, strings.Repeat("a", maxValue+1)} {
		for name, set := range map[string]func(f *Fencing){
			"ZKELECTD_NODE": func(f *Fencing) { f.Node = bad }, "ZKELECTD_SITE": func(f *Fencing) { f.Site = bad },
			"ZKELECTD_GROUP": func(f *Fencing) { f.Group = bad }, "ZKELECTD_ROOT": func(f *Fencing) { f.Root = bad }, `the term`: func(f *Fencing) { f.Term = bad },
		} {
			f := fine
			set(&f)
			if err := f.Check(); err == nil || !strings.HasPrefix(err.Error(), name) || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
	for _, term := range []string{"", "0", "-1", "07", "+7", "7 ", "0x7", "9223372036854775808"} {
		f := fine
		f.Term = term
		if f.Check() == nil {
			t.Errorf("%q is accepted as a term", term)
		}
	}
}

// A standby belongs to no term; whatever leads has one.
func TestStandby(t *testing.T) {
	f := Fencing{Node: "n", Site: "s", Group: "g", Term: "7", Root: "/r/g", Slot: "0", Slots: "2", Cause: "failure"}.Standby()
	if got := strings.Join(f.Variables(), " "); got != "ZKELECTD_NODE=n ZKELECTD_SITE=s ZKELECTD_GROUP=g ZKELECTD_ROOT=/r/g ZKELECTD_ROLE=standby" {
		t.Error(got)
	}
	if err := f.Check(); err != nil {
		t.Error(err)
	}
	if f.Role = RoleLeader; f.Check() == nil {
		t.Error("a leader without a term is accepted")
	}
}

func TestBuild(t *testing.T) {
	base := []string{"PATH=/bin", "ZKELECTD_ZOOKEEPER_AUTH=secret", "NOTIFY_SOCKET=/x", "WATCHDOG_USEC=1", "CREDENTIALS_DIRECTORY=/c", "LISTEN_FDS=1", "HOME=/h"}
	f := Fencing{Node: "n", Site: "s", Group: "g", Term: "7", Root: "/r/g"}
	got := Build(base, f, map[string]string{"FOO": "bar", "ZKELECTD_TERM": "9"})
	slices.Sort(got)
	want := []string{"FOO=bar", "HOME=/h", "PATH=/bin", "ZKELECTD_GROUP=g", "ZKELECTD_NODE=n", "ZKELECTD_ROOT=/r/g", "ZKELECTD_SITE=s", "ZKELECTD_TERM=7"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	f.Slot, f.Slots, f.Epoch = "0", "8", "3"
	got = Build([]string{"ZKELECTD_SLOT=9"}, f, map[string]string{"ZKELECTD_SLOTS": "9"})
	slices.Sort(got)
	want = slices.Concat([]string{"ZKELECTD_EPOCH=3"}, want[3:6], []string{"ZKELECTD_SITE=s", "ZKELECTD_SLOT=0", "ZKELECTD_SLOTS=8", "ZKELECTD_TERM=7"})
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	vars := strings.Join(Fencing{Cause: "failure", PreviousLeader: "n2"}.Variables(), " ")
	if !strings.Contains(vars, "ZKELECTD_CAUSE=failure ZKELECTD_PREVIOUS_LEADER=n2 ZKELECTD_PREVIOUS_CLEAN=false") {
		t.Errorf("the last term: %s", vars)
	}
}

// A hook that belongs to no term gets the variables of the child, but no identity.
func TestExtend(t *testing.T) {
	got := Extend([]string{"HOME=/h", "ZKELECTD_TERM=7", "NOTIFY_SOCKET=/x"}, map[string]string{"FOO": "bar", "ZKELECTD_NODE": "n"})
	if !slices.Equal(got, []string{"HOME=/h", "FOO=bar"}) {
		t.Errorf("%q", got)
	}
}
