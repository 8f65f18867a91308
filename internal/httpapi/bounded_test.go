package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// dialed is a connection that lasts until the test ends.
func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return c
}

// speak sends something and returns the first line of what comes back.
func speak(c net.Conn, text string) (string, error) {
	io.WriteString(c, text)
	return bufio.NewReader(c).ReadString('\n')
}

const question = "GET /leader HTTP/1.1\r\nHost: x\r\n\r\n"

func TestTooManyClientsAreTurnedAway(t *testing.T) {
	entered, free := make(chan struct{}), make(chan struct{})
	addr := listening(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case entered <- struct{}{}:
		case <-free:
		}
		<-free
	}), 1)
	first := dialed(t, addr)
	io.WriteString(first, question)
	<-entered
	if line, err := speak(dialed(t, addr), question); err == nil {
		t.Errorf("the second, while the first is answered, gets %q", line)
	}
	close(free)
	if line, _ := bufio.NewReader(first).ReadString('\n'); !strings.Contains(line, "200") {
		t.Errorf("the first: %q", line)
	}
	if code, _ := fetch(t, client(), "http://"+addr+"/leader"); code != 200 {
		t.Errorf("once the first is idle: %d", code)
	}
}

// Clients that never finish their question, or keep a connection for nothing, keep nobody else out.
func TestWhoAsksNothingGivesWay(t *testing.T) {
	const places = 4
	addr := listening(t, of(leader()), places)
	for range 5 * places {
		silent, slow, idle := dialed(t, addr), dialed(t, addr), dialed(t, addr)
		_ = silent
		io.WriteString(slow, "GET /leader HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		if line, err := speak(idle, question); !strings.Contains(line, "200") {
			t.Fatalf("one that asks: %q %v", line, err)
		}
	}
	if code, _ := fetch(t, client(), "http://"+addr+"/leader"); code != 200 {
		t.Errorf("/leader: %d", code)
	}
}

func TestPlacesAreGivenBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := &bounded{Listener: l, free: 2}
	for range 3 {
		dialed(t, l.Addr().String())
		c, err := b.Accept()
		if err != nil {
			t.Fatal(err)
		}
		b.turned(c, http.StateNew)
	}
	if len(b.waiting) != 2 || b.free != 0 {
		t.Fatalf("%d waiting, %d free", len(b.waiting), b.free)
	}
	c := b.waiting[0]
	c.Close()
	c.Close()
	b.turned(c, http.StateIdle) // late news
	if len(b.waiting) != 1 || b.free != 1 {
		t.Errorf("%d waiting, %d free", len(b.waiting), b.free)
	}
}
