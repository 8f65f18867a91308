package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store"
)

// shownHint matches a hint in what people read: a quote in a name has a backslash before it.
var shownHint = regexp.MustCompile(`'(zkelectd (?:[^'\\]|\\.)*)'`)

// The hints of the status repair the group that it shows, although its root is not where its name says, and although the lost node has a
// name that a shell would split. Another group, with the same damage, stays as it is.
func TestHintsOfTheStatusWork(t *testing.T) {
	t.Parallel()
	const lost = "n1; it's lost"
	base := fmt.Sprintf("/estates/e%d", groups.Add(1))
	damaged := func(name, root string) *fleet {
		f := newFleetAt(t, root)
		if err := store.EnsureIdentity(t.Context(), f.session, base, name, root, cluster.KindSingle); err != nil {
			t.Fatal(err)
		}
		roster := cluster.Roster{Nodes: []cluster.RosterNode{{ID: lost, Site: "dc1", Left: &cluster.Left{How: cluster.LeftLost, Time: time.Now()}}}}
		for path, data := range map[string]string{f.paths.Policy(): "x", f.paths.Control(): "x", f.paths.Roster(): string(cluster.Encode(&roster))} {
			f.write(remove(path))
			f.write(cluster.Op{Kind: cluster.OpCreate, Path: path, Data: []byte(data)})
		}
		return f
	}
	// The root of billing ends in "mail", which is the name of the other group.
	billing, mail := damaged("billing", fmt.Sprintf("/own/r%d/mail", groups.Add(1))), damaged("mail", base+"/mail")
	dir := filepath.Join(billing.dir, "groups")
	file := filepath.Join(billing.dir, "main.yaml")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		file:                               fmt.Sprintf("node: {id: n2}\nzookeeper: {servers: [%s], root: %s}\ngroups_dir: %s\n", billing.servers[0], base, dir),
		filepath.Join(dir, "billing.yaml"): "zookeeper: {root: " + billing.paths.Root + "}\n",
		filepath.Join(dir, "mail.yaml"):    "{}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	typed := func(line string) string {
		cmd := exec.Command("sh", "-c", line)
		cmd.Env = append(os.Environ(), "ZKELECTD_CONFIG="+file)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	shown := typed("zkelectd status -g billing")
	for _, command := range []string{"zkelectd repair policy ", "zkelectd repair control ", "zkelectd forget "} {
		found := false
		for _, m := range shownHint.FindAllStringSubmatch(shown, -1) {
			if strings.HasPrefix(m[1], command) {
				found = true
				typed(m[1])
			}
		}
		if !found {
			t.Errorf("there is no hint %q in\n%s", command, shown)
		}
	}
	if s := billing.snapshot(); !s.Policy.Readable() || !s.Control.Readable() || len(s.Roster.Record.Nodes) != 0 {
		t.Errorf("the group is not repaired: %+v\n%s", s, shown)
	}
	if s := mail.snapshot(); s.Policy.Err == nil || s.Control.Err == nil || len(s.Roster.Record.Nodes) != 1 {
		t.Errorf("another group was repaired: %+v\n%s", s, shown)
	}
}
