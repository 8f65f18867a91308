package guard

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

// The loop sets the release while a reload, in another goroutine, sets the access: the guard gets the last state last, and the
// session file has it. A stale release would cost the group its failover in milliseconds.
func TestSessionUpdatesFromTwoGoroutines(t *testing.T) {
	c := newClient(t)
	c.SetSession(Credentials{Servers: []string{"a:1"}, ID: 5, File: c.file})
	c.expect(kindSession)
	for i := range 300 {
		want := json.RawMessage(fmt.Sprint(i))
		var both sync.WaitGroup
		both.Go(func() { c.SetAccess(want) })
		both.Go(func() { c.SetRelease(want) })
		c.expect(kindSession)
		sent := c.expect(kindSession).Session
		both.Wait()
		f, err := ReadSessionFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		for where, s := range map[string]Credentials{"sent last": *sent, "written": f.Session} {
			if string(s.Access) != string(want) || string(s.Release) != string(want) {
				t.Fatalf("%s: access %s, release %s, want %s", where, s.Access, s.Release, want)
			}
		}
	}
}
