package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// newTeam returns a fleet whose daemons and commands use one user, and whose tree is private. The session that it has presents the users
// of all teams.
func newTeam(t *testing.T, root, user string, all ...string) *fleet {
	t.Helper()
	f := openFleet(t, root)
	f.session.Close(t.Context())
	auth, every := filepath.Join(f.dir, "auth"), filepath.Join(f.dir, "every")
	put(t, auth, user+":secret-of-"+user)
	var lines []string
	for _, one := range all {
		lines = append(lines, one+":secret-of-"+one)
	}
	put(t, every, strings.Join(lines, "\n"))
	f.env = []string{"ZKELECTD_ZOOKEEPER_AUTH_FILE=" + auth}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var err error
	if f.session, err = zk.Open(ctx, zk.Options{Servers: f.servers, Timeout: time.Minute, Access: zk.Access{Auth: zk.AuthFile{Path: every}, ACL: zk.ACLPrivate}}); err != nil {
		t.Fatal(err)
	}
	f.configure(user, "dc1", 1, fmt.Sprintf("zookeeper: {session_timeout: 4s, acl: private, session_file: '%s.session'}\n", f.socket(user)))
	return f
}

// Of two teams below one parent, the first one owns it. The daemon, check and doctor of the other say so, and nothing is created. Both can
// use a parent that somebody has created for them.
func TestTeamsBelowOneParent(t *testing.T) {
	t.Parallel()
	parent := fmt.Sprintf("/teams%d", groups.Add(1))
	a, b := newTeam(t, parent+"/a", "a", "a", "b"), newTeam(t, parent+"/b", "b", "a", "b")
	a.start("a")
	a.until("a leads", leads("a"))
	cause := fmt.Sprintf("cannot create znode %s/b: znode %s belongs to somebody else: its ACL, which this user must not read, does not permit it", parent, parent)
	p := b.start("b")
	if code := b.exit("b"); code != 1 || !strings.Contains(p.Output(), cause) {
		t.Errorf("exit status %d, want %q:\n%s", code, cause, p.Output())
	}
	if out, err := b.run("check", "--config", b.file("b")); err != nil || !strings.Contains(out, "warning: a daemon could not take part: "+cause) {
		t.Errorf("check: %v\n%s", err, out)
	}
	if _, bad := b.examineWith(b.file("b")); !strings.Contains(strings.Join(bad, "\n"), "fail permissions b: a daemon could not take part: "+cause) {
		t.Errorf("doctor: %q", bad)
	}
	if out, err := a.run("check", "--config", a.file("a")); err != nil || strings.Contains(out, "could not take part") {
		t.Errorf("check of a: %v\n%s", err, out)
	}
	if names, _, err := b.session.Children(t.Context(), parent, false); err != nil || len(names) != 1 {
		t.Errorf("below the parent: %q, %v", names, err)
	}

	parent += "-shared"
	a, b = newTeam(t, parent+"/a", "a", "a", "b"), newTeam(t, parent+"/b", "b", "a", "b")
	a.write(cluster.Op{Kind: cluster.OpCreate, Path: parent, Data: []byte{}})
	for user, f := range map[string]*fleet{"a": a, "b": b} {
		if out, err := f.run("check", "--config", f.file(user)); err != nil || strings.Contains(out, "could not take part") {
			t.Errorf("check of %s: %v\n%s", user, err, out)
		}
		f.start(user)
		f.until(user+" leads", leads(user))
	}
}
