package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/procinfo"
)

// A session file of another boot may be a copy, or have moved with its disk, while its host still leads: the session is closed, but only that
// host may say that its work is dead (S1).
func TestTheSessionFileOfAnotherBootReleasesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	session := f.sessionFile("a")
	f.startLeader("a", fmt.Sprintf("zookeeper: {session_timeout: 10s, session_file: %s}\n", session))
	f.waitForWork("a")
	boot, err := procinfo.BootID()
	if err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "session")
	files, err := filepath.Glob(session + "*")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text := strings.ReplaceAll(read(file), `"boot":"`+boot+`"`, `"boot":"that of another host"`)
		if err := os.WriteFile(moved+strings.TrimPrefix(file, session), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := f.snapshot()
	f.releasesSession(moved)
	f.until("another term", func(g status.Group) bool { return g.Term > before.Elected.Record.Term && leads("a")(g) })
	if after := f.snapshot(); after.Fence.Record.Wait == "" {
		t.Errorf("the next leader has waited for nothing after %+v", before.Fence.Record)
	}
	f.checkInvariants()
}
