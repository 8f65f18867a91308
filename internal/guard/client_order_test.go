package guard

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

// Two goroutines set the session's access, or the release of a leadership: the guard gets the last state last, and the files have
// it. A stale release would cost the group its failover in milliseconds.
func TestSessionUpdatesFromTwoGoroutines(t *testing.T) {
	c := newClient(t)
	c.SetSession(Credentials{Servers: []string{"a:1"}, ID: 5})
	c.expect(kindSession)
	for i := range 100 {
		var both sync.WaitGroup
		for j := range 2 {
			both.Go(func() {
				value := json.RawMessage(fmt.Sprint(2*i + j))
				c.SetAccess([]string{string(value)}, value)
				c.l.SetRelease(value)
			})
		}
		var access, release string
		for range 4 {
			if m := c.receiveAny(); m.Kind == kindSession {
				access = string(m.Session.Access) + m.Session.Servers[0]
			} else {
				release = string(m.Release)
			}
		}
		both.Wait()
		f, err := ReadSessionFile(c.file)
		if err != nil || len(f.Leaderships) != 1 {
			t.Fatal(f, err)
		}
		if got := string(f.Session.Access) + f.Session.Servers[0]; got != access {
			t.Fatalf("access %s was written, %s sent", got, access)
		}
		if got := string(f.Leaderships[0].Release); got != release {
			t.Fatalf("release %s was written, %s sent", got, release)
		}
	}
}
