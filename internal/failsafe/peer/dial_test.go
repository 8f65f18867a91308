package peer

import (
	"context"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Name servers that are away together with ZooKeeper do not refuse: they say nothing. A daemon that was reached before is reached all the
// same, before the round is over.
func TestNameServersThatSayNothing(t *testing.T) {
	secret := [][]byte{[]byte("secret")}
	server := httptest.NewServer(NewHandler(ServerOptions{
		Node: "n2", Secrets: func(string) [][]byte { return secret },
		Answer: func(Kind, string, string, []byte) ([]byte, error) { return []byte("yes"), nil },
	}))
	defer server.Close()
	address := strings.Replace(server.Listener.Addr().String(), "127.0.0.1", "n2.example", 1)
	c := NewClient("n1")
	defer c.Close()
	c.dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	c.dialed[address] = server.Listener.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond) // a third of the lease, with a session timeout of 6 s
	defer cancel()
	got, err := c.Ask(ctx, Round, "n2", address, []Message{{Group: "/g", Body: []byte("?"), Secrets: secret}})
	if err != nil || got[0].Err != nil || string(got[0].Body) != "yes" {
		t.Errorf("%+v, %v", got, err)
	}
}
