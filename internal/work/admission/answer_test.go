package admission

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"zkelectd/internal/test/testhelper"
)

// A server replaces the socket of a dead daemon, and does not answer once it is closed.
func TestServerAnswersUntilItIsClosed(t *testing.T) {
	socket := filepath.Join(testhelper.PublicDir(t), "unit.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	s, err := Serve(socket, Answer{Group: "/a.service", Fencing: testFencing})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 3 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := readAnswer(conn); err != nil || a.Group != "/a.service" || a.Fencing != testFencing {
			t.Errorf("%+v, %v", a, err)
		}
		conn.Close()
	}
	s.Close()
	s.Close()
	if _, err := net.Dial("unix", socket); !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
}
