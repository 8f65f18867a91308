package clients

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// standIn is a daemon that hands out one lease after another, without extending it. Its clock is ahead of this
// process's.
type standIn struct {
	ahead time.Duration
	lease time.Duration

	mu       sync.Mutex
	handed   time.Duration // when the first lease was handed out
	returned chan string
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("lease")
	if r.Method == http.MethodDelete {
		s.returned <- id
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := boottime.Now()
	if s.handed == 0 {
		s.handed = now
	}
	left := s.handed + s.lease - now
	answer := map[string]any{"boottime_ns": now + s.ahead, "leading": false, "stop": false, "lease_end_ns": 0, "lease_left_ns": 0}
	if left > 0 && r.Method != http.MethodDelete {
		answer["leading"], answer["lease"], answer["token"] = true, "x", 7
		answer["lease_end_ns"], answer["lease_left_ns"] = s.handed+s.lease+s.ahead, left
	}
	if id != "" && r.URL.Query().Get("wait") != "0s" && r.URL.Query().Get("wait") != "0ms" {
		s.mu.Unlock()
		<-time.After(20 * time.Millisecond)
		s.mu.Lock()
	}
	json.NewEncoder(w).Encode(answer)
}

// In another time namespace, CLOCK_BOOTTIME differs by a constant. A client takes that into account, and never believes
// that its lease ends later than it does.
func TestADaemonWithAnotherClock(t *testing.T) {
	f := &fleet{t: t, dir: t.TempDir(), session: 10 * time.Second, apps: languages(t), ledger: new(ledger)}
	for language := range f.apps {
		for name, ahead := range map[string]time.Duration{"later": time.Hour, "earlier": -boottime.Now() / 2} {
			t.Run(language+" "+name, func(t *testing.T) {
				g := *f
				g.t, g.ledger = t, new(ledger)
				s := &standIn{ahead: ahead, lease: 600 * time.Millisecond, returned: make(chan string, 1)}
				socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
				if err != nil {
					t.Fatal(err)
				}
				server := &http.Server{Handler: s}
				go server.Serve(socket)
				defer server.Close()
				p := g.startApp(language, socket.Addr().String(), "g", time.Second, true)
				if !p.await("led") {
					return
				}
				if id := <-s.returned; id != "x" {
					t.Errorf("it returns %q", id)
				}
				end := (s.handed + s.lease).Nanoseconds()
				if l := g.led[0]; l.to > end || l.to < end-int64(200*time.Millisecond) || l.token != 7 {
					t.Errorf("%+v, but the lease has ended %s later", l, time.Duration(end-l.to))
				}
				p.Signal(syscall.SIGKILL)
				<-p.Done
			})
		}
	}
}
