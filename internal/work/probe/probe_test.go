package probe

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("ROLE") == "notifier" {
		notify(os.Getenv("NOTIFY_SOCKET"), os.Getenv("TEXT"))
		os.Stdin.Read(make([]byte, 1)) // keep the process alive until the test has seen it
		return
	}
	goleak.VerifyTestMain(m)
}

func notify(name, text string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(text))
	return err
}

func quick(r Readiness) Readiness {
	if r.Timeout == 0 {
		r.Timeout = 20 * time.Second
	}
	return r
}

func TestReadyAfterSomeChecks(t *testing.T) {
	file := t.TempDir() + "/checks"
	var checks atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if checks.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	for name, r := range map[string]Readiness{
		"none": {},
		"exec": {Target: Target{Exec: []string{"sh", "-c", "echo x >>" + file + "; [ $(wc -l <" + file + ") -ge 3 ]"}}},
		"http": {Target: Target{HTTP: server.URL}},
		"tcp":  {Target: Target{TCP: strings.TrimPrefix(server.URL, "http://")}},
	} {
		if err := Wait(t.Context(), quick(r), os.Environ(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if checks.Load() < 3 {
		t.Errorf("%d checks", checks.Load())
	}
}

func TestErrorHasTheResultOfTheLastCheck(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/login", http.StatusFound)
	}))
	defer server.Close()
	socket, err := ListenNotify(Notified{})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	socket.Expect(1)
	for want, r := range map[string]Readiness{
		"child.ready.exec sh: exit status 4: not yet": {Target: Target{Exec: []string{"sh", "-c", "echo not yet; exit 4"}}},
		"answered 302 Found":                          {Target: Target{HTTP: server.URL}},
		"child.ready.tcp 127.0.0.1:1":                 {Target: Target{TCP: "127.0.0.1:1"}},
		"(child.ready.notify: received no READY=1)":   {Notify: true},
	} {
		r.Timeout = time.Second
		err := Wait(t.Context(), quick(r), os.Environ(), socket)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "not ready within 1s") {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// notifier runs a process in its own process group that sends text.
func notifier(t *testing.T, socket *Socket, text string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ROLE=notifier", "NOTIFY_SOCKET="+socket.Path(), "TEXT="+text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	return cmd
}

func TestNotify(t *testing.T) {
	statuses := make(chan string, 10)
	socket, err := ListenNotify(Notified{Status: func(s string) { statuses <- s }})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	child := notifier(t, socket, "garbage\x01\nREADY=0\nSTATUS=half way\nX_ZKELECTD_VALUE=tcp://a:1?x=y\nREADY=1\n=")
	socket.Expect(child.Process.Pid)
	if err := Wait(t.Context(), quick(Readiness{Notify: true}), nil, socket); err != nil {
		t.Error(err)
	}
	if s := <-statuses; s != "half way" {
		t.Errorf("status %q", s)
	}
	if v := socket.Value(); v != "tcp://a:1?x=y" {
		t.Errorf("value %q", v)
	}
}

// The descriptors that a notification brings are closed, also if its sender is rejected, and if there are more than the
// receiver has room for.
func TestNotifyClosesReceivedDescriptors(t *testing.T) {
	own, err := syscall.Getpgid(0)
	if err != nil {
		t.Fatal(err)
	}
	for name, group := range map[string]int{"accepted": own, "rejected": 1} {
		for _, n := range []int{1, 100} {
			socket, err := ListenNotify(Notified{})
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			socket.Expect(group)
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			sender, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			rights := syscall.UnixRights(slices.Repeat([]int{int(write.Fd())}, n)...)
			to := &syscall.SockaddrUnix{Name: socket.Path()}
			if err := syscall.Sendmsg(sender, []byte("BARRIER=1"), rights, to, 0); err != nil {
				t.Fatal(err)
			}
			syscall.Close(sender)
			write.Close()
			read.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("%s sender of %d descriptors: %v", name, n, err)
			}
		}
	}
}

func TestOtherProcessesCannotNotify(t *testing.T) {
	statuses := make(chan string, 10)
	socket, err := ListenNotify(Notified{Status: func(s string) { statuses <- s }})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	child := notifier(t, socket, "nothing")
	socket.Expect(child.Process.Pid)
	if err := notify(socket.Path(), "READY=1\nSTATUS=other"); err != nil { // from this process, which is in another process group
		t.Fatal(err)
	}
	notifier(t, socket, "READY=1")
	r := quick(Readiness{Notify: true, Timeout: 300 * time.Millisecond})
	if err := Wait(t.Context(), r, nil, socket); err == nil {
		t.Error("another process made the child ready")
	}
	select {
	case s := <-statuses:
		t.Errorf("the status %q of another process was accepted", s)
	default:
	}
}
