package clients

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
)

// standIn is a daemon that hands out one lease after another, each twice as long as the one before, without extending
// it: a slow start may use up the first ones. Its clock is ahead of this process's.
type standIn struct {
	ahead time.Duration

	mu       sync.Mutex
	ends     []time.Duration // of the leases; a lease's id, and its token, is its number, from 1
	returned chan string
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("lease")
	s.mu.Lock()
	defer s.mu.Unlock()
	now := boottime.Now()
	answer := map[string]any{"boottime_ns": now + s.ahead, "leading": false, "stop": false, "lease_end_ns": 0, "lease_left_ns": 0}
	if r.Method == http.MethodDelete {
		s.returned <- id
	} else {
		if n := len(s.ends); id == "" && (n == 0 || s.ends[n-1] <= now) {
			s.ends = append(s.ends, now+600*time.Millisecond<<n)
		}
		n := len(s.ends)
		if left := s.ends[n-1] - now; left > 0 {
			answer["leading"], answer["lease"], answer["token"] = true, strconv.Itoa(n), n
			answer["lease_end_ns"], answer["lease_left_ns"] = s.ends[n-1]+s.ahead, left
		}
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
				s := &standIn{ahead: ahead, returned: make(chan string, 100)}
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
				l := g.led[0]
				for id := range s.returned {
					if id == strconv.FormatInt(l.token, 10) {
						break
					}
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				end := s.ends[l.token-1].Nanoseconds()
				if l.to > end || l.to < end-int64(200*time.Millisecond) {
					t.Errorf("%+v, but the lease has ended %s later", l, time.Duration(end-l.to))
				}
				p.Signal(syscall.SIGKILL)
				<-p.Done
			})
		}
	}
}
