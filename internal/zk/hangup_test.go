package zk

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// hangUpOn returns a script of a server that closes the connection on a connect request, and answers srvr.
func hangUpOn(status string) func(*scriptedServer, net.Conn) {
	return func(_ *scriptedServer, c net.Conn) {
		head := make([]byte, 4)
		if _, err := io.ReadFull(c, head); err == nil && string(head) == "srvr" {
			io.WriteString(c, status)
		}
	}
}

// A server that hangs up on a client is named with the reason, for the commands and for doctor.
func TestHangUpIsExplained(t *testing.T) {
	t.Parallel()
	tr := newTestCAs(t)
	own := tr.issue(tr.ca, "zk", time.Hour)
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		server func(*scriptedServer, net.Conn)
		want   string
	}{
		"no quorum":   {hangUpOn("This ZooKeeper instance is not currently serving requests\n"), "has no quorum: start the other servers"},
		"read-only":   {hangUpOn("Zookeeper version: 3.8.0-5a02a05e, built on 2022-02-25\nMode: read-only\n"), "is read-only"},
		"connections": {func(_ *scriptedServer, c net.Conn) {}, "maxClientCnxns"},
		"TLS": {func(_ *scriptedServer, c net.Conn) {
			tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}}).Handshake()
		}, "set zookeeper.tls.ca"},
		"another reason": {hangUpOn("srvr is not executed because it is not in the whitelist.\n"), "log says why"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newScriptedServer(t, c.server)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			_, err := Open(ctx, Options{Servers: []string{server.addr}, Timeout: 3 * time.Second})
			contains(t, err, server.addr, c.want)
			asking, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			info, err := InspectServer(asking, Access{}, server.addr, server.addr, time.Second)
			contains(t, err, c.want)
			if info.Connect == 0 {
				t.Error("the server counts as one that cannot be reached")
			}
		})
	}
}
