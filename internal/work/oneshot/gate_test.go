package oneshot

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func newGate(t *testing.T) (*Gate, string) {
	t.Helper()
	t.Setenv(addressVariable, "") // restored at the end
	g, err := NewGate()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g, os.Getenv(addressVariable)
}

func dialAs(t *testing.T, address string) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Close may be called at any time, also while a starter is being accepted.
func TestGateIsClosedWhileItServes(t *testing.T) {
	for i := range 200 {
		g, address := newGate(t)
		served := make(chan error)
		go func() {
			_, err := g.Serve(func(int64, string) error { return nil })
			served <- err
		}()
		conn := dialAs(t, address)
		for range i { // each time a little later
			runtime.Gosched()
		}
		g.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) && !errors.Is(err, errKilled) {
			t.Errorf("%v", err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the starter still has a connection")
		}
	}
}

// Another user can see the address of the socket, but is not served.
func TestGateServesNoOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can act as another user
	}
	g, address := newGate(t)
	refused := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			refused <- errno
			return
		}
		conn, err := net.Dial("unix", address)
		if err == nil {
			defer conn.Close()
			if _, err = conn.Read(make([]byte, 1)); err != nil {
				err = nil // closed
			} else {
				err = errors.New("another user was answered")
			}
		}
		refused <- err
	}()
	go func() {
		if err := <-refused; err != nil {
			t.Error(err)
		}
		json.NewEncoder(dialAs(t, address)).Encode(message{Term: 8})
	}()
	stop := errors.New("stop")
	var term int64
	if _, err := g.Serve(func(got int64, _ string) error { term = got; return stop }); !errors.Is(err, stop) || term != 8 {
		t.Errorf("term %d, %v", term, err)
	}
}

// A job runs only if the daemon's own user permits it.
func TestAJobAsksNoOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can act as another user
	}
	const address = "@zkelectd-exec-test"
	t.Setenv(addressVariable, address)
	listening := make(chan error)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			listening <- errno
			return
		}
		l, err := net.Listen("unix", address)
		listening <- err
		if err == nil {
			defer l.Close()
			if conn, err := l.Accept(); err == nil {
				json.NewEncoder(conn).Encode(message{Run: true})
				conn.Close()
			}
		}
	}()
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
	if err := RunJob(7, "", []string{"false"}); err == nil || !strings.Contains(err.Error(), "user 65534 answers at "+address) {
		t.Errorf("%v", err)
	}
	<-ended
}
