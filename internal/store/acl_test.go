package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/zk"
)

// credentialsFile writes a credentials file.
func credentialsFile(t *testing.T, text string) zk.AuthFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return zk.AuthFile{Path: path}
}

func TestWrongPasswordErrorSaysWhatToDo(t *testing.T) {
	creator := open(t, zk.Options{Access: zk.Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: zk.ACLPrivate}})
	p := root(t, creator)
	impostor := open(t, zk.Options{Access: zk.Access{Auth: credentialsFile(t, "zkelectd:hunter2"), ACL: zk.ACLPrivate}})
	err := EnsureTree(t.Context(), impostor, p)
	contains(t, err, "cannot read znode "+p.Root, "not permitted", `user "zkelectd" from zookeeper.auth.file `, "password")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the password is in %v", err)
	}
	_, err = Register(t.Context(), impostor, p, cluster.Node{ID: "n1", Instance: cluster.NewInstance(1)})
	contains(t, err, "create "+p.Node("n1"), "its parent "+p.Nodes(), "zookeeper.auth.file")
}

// A member that others may not read must not keep them from reading the rest.
func TestUnreadableMemberDoesNotBlockOthers(t *testing.T) {
	other := open(t, zk.Options{})
	p := root(t, other)
	if _, err := Register(t.Context(), other, p, cluster.Node{ID: "other", Instance: cluster.NewInstance(1)}); err != nil {
		t.Fatal(err)
	}
	closedOff := open(t, zk.Options{Access: zk.Access{Auth: credentialsFile(t, "somebody:else"), ACL: zk.ACLPrivate}})
	if _, err := Register(t.Context(), closedOff, p, cluster.Node{ID: "closed", Instance: cluster.NewInstance(1)}); err != nil {
		t.Fatal(err)
	}
	snap, err := ReadAll(t.Context(), other, p, false)
	if err != nil || len(snap.Members) != 2 || !snap.Members[0].Node.Readable() {
		t.Fatalf("%v, %+v", err, snap.Members)
	}
	if m := snap.Members[1]; !errors.Is(m.Node.Err, cluster.ErrNoAuth) {
		t.Errorf("%+v", m)
	}
	contains(t, snap.Members[1].Node.Err, p.Node("closed"), "zookeeper.auth.file")
}
