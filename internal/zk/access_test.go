package zk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/test/zkserver"
)

func TestAuthFileIsCheckedAndNeverQuoted(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) AuthFile {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return AuthFile{Path: path}
	}
	for want, f := range map[string]AuthFile{
		"cannot be read: no such file":      {Path: filepath.Join(dir, "missing")},
		"is not a regular file":             {Path: dir},
		"fifo is not a regular file":        {Path: fifo},
		"mode 0644":                         write("others", "user:hunter2", 0o644),
		"mode 0640":                         write("group", "user:hunter2", 0o640),
		"$CREDENTIALS_DIRECTORY is not set": {Path: "zookeeper"},
		"has no user:password line":         write("empty", "\n# a comment\n", 0o600),
		"line 3 duplicates an earlier one":  write("two", "user:hunter2\n\nuser:hunter2\n", 0o600),
		"line 2 is not user:password":       write("word", "user:hunter2\nhunter2", 0o600),
		"line 1 is not user:password":       write("nobody", ":hunter2", 0o600),
		"not printable ASCII":               write("locale", "user:hunter2é", 0o600),
		"more than 8 user:password lines":   write("many", lines(9, "user:hunter2-"), 0o600),
		"is longer than 4096 bytes":         write("long", "user:"+strings.Repeat("hunter2", 1000), 0o600),
	} {
		err := Access{Auth: f}.Check()
		contains(t, err, want, "zookeeper.auth.file: "+f.Path)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is in %v", err)
		}
	}
	for _, mode := range []os.FileMode{0o600, 0o400} {
		who, err := write("right", "# the new one\nuser:a:b\r\n\nuser:old\n", mode).read(authKey)
		if err != nil || len(who.all) != 2 || string(who.all[0].secret()) != "user:a:b" || who.all[1].name != "user" {
			t.Errorf("%#o: %+v, %v", mode, who, err)
		}
	}
	credential := write("credential", "user:hunter2", 0o440)
	credential.Systemd = true
	if err := (Access{Auth: credential}).Check(); err != nil {
		t.Errorf("systemd credential: %v", err)
	}
	if err := (Access{}).Check(); err != nil {
		t.Errorf("no file: %v", err)
	}
	// The units pass an empty credential if the file does not exist. It has no identity, so it cannot own a private tree.
	nobody := write("nothing", "", 0o440)
	nobody.Systemd = true
	if who, err := nobody.read(authKey); err != nil || len(who.all) > 0 || !strings.Contains(who.deniedAdvice(), nobody.Path+" is empty") {
		t.Errorf("an empty credential: %+v, %v", who, err)
	}
	if err := (Access{Auth: nobody, ACL: ACLOpen}).Check(); err != nil {
		t.Errorf("an empty credential for an open tree: %v", err)
	}
	contains(t, Access{Auth: nobody, ACL: ACLPrivate}.Check(), `zookeeper.acl: "private" needs credentials`, nobody.Path+" is empty")
	contains(t, Access{ACL: ACLPrivate}.Check(), `zookeeper.acl: "private" needs zookeeper.auth.file`)
	if _, err := Open(t.Context(), Options{Servers: []string{shared.Addr()}, Timeout: time.Second, Access: Access{Auth: nobody, ACL: ACLReadable}}); err == nil {
		t.Error("a session without identities opened although its ACL is private")
	}
}

// lines returns n different lines.
func lines(n int, begin string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, begin+strconv.Itoa(i))
	}
	return b.String()
}

// If a server requires authentication, closing a session from outside needs it too.
func TestServerThatEnforcesAuthentication(t *testing.T) {
	strict := zkserver.ForTest(t, zkserver.Options{
		ExtraConfig: []string{"enforce.auth.enabled=true", "enforce.auth.schemes=digest"},
	})
	access := Access{Auth: credentialsFile(t, "zkelectd:right"), ACL: ACLPrivate}
	servers := []string{strict.Addr()}
	s := open(t, Options{Servers: servers, Access: access})
	p := root(t, s)
	createAllZnodes(t, s, p)
	if err := s.CheckEnsemble(t.Context()); err != nil {
		t.Error(err)
	}
	e := SessionHandle{Servers: servers, Session: s.SessionID(), Password: s.Password()}
	s.end(errors.New("dead")) // alive, it would reattach to its session
	if err := CloseSession(t.Context(), e); err == nil {
		t.Fatal("the server lets unauthenticated clients close a session: this test checks nothing")
	}
	e.Access.Auth.Path = filepath.Join(t.TempDir(), "gone")
	contains(t, CloseSession(t.Context(), e), "cannot close session", "gone cannot be read")
	e.Access = access
	if err := CloseSession(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if err := CloseSession(t.Context(), e); !errors.Is(err, ErrNoSuchSession) {
		t.Errorf("closed twice: %v", err)
	}
}
