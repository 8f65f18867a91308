package cli

import (
	"testing"

	"zkelectd/internal/test/faultproxy"
)

// newLink returns a network path to a server, which can be cut.
func newLink(t *testing.T, target string) *faultproxy.Proxy {
	t.Helper()
	l, err := faultproxy.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}
