package zk

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// A server that does not want a client closes the connection without a word, for whatever reason.

// isHangUp reports whether err means that the other side has closed the connection.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// explainHangUp adds to the error of a server that has hung up on a connect request why it did so, as far as that can
// be found out.
func explainHangUp(ctx context.Context, dial DialFunc, withTLS bool, server string, err error) error {
	if !isHangUp(err) {
		return err
	}
	if !withTLS && usesTLS(ctx, dial, server) {
		return fmt.Errorf("%w; the server uses TLS on this port: set zookeeper.tls.ca, or use its clientPort", err)
	}
	status, statusErr := askStatus(ctx, dial, server)
	_, mode, _ := parseStatus(status)
	switch {
	case ctx.Err() != nil:
		return err
	case strings.Contains(status, "not currently serving requests"):
		return fmt.Errorf("%w; the server runs, but it has no quorum: start the other servers of its ensemble, or "+
			"look at its log", err)
	case mode == "read-only":
		return fmt.Errorf("%w; the server has no quorum and is read-only: start the other servers of its ensemble", err)
	case status == "" && (statusErr == nil || isHangUp(statusErr)):
		return fmt.Errorf("%w; the server closes every connection from this host: most likely there are as many as "+
			"its maxClientCnxns permits: "+
			"raise that, or close some", err)
	}
	return fmt.Errorf("%w; the server's log says why", err)
}

// askStatus returns the answer of a server to the command srvr, empty if it hangs up.
func askStatus(ctx context.Context, dial DialFunc, server string) (string, error) {
	conn, err := dial(ctx, "tcp", server)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(conn, maxStatus))
	if len(text) > 0 {
		err = nil
	}
	return string(text), err
}

// usesTLS reports whether a server answers in TLS.
func usesTLS(ctx context.Context, dial DialFunc, server string) bool {
	conn, err := dial(ctx, "tcp", server)
	if err != nil {
		return false
	}
	defer conn.Close()
	host, _, _ := net.SplitHostPort(server)
	err = tls.Client(conn, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
	var untrusted *tls.CertificateVerificationError
	var op *net.OpError
	return err == nil || errors.As(err, &untrusted) || errors.As(err, &op) && op.Op == alertOp
}

// explainLimit limits the questions of [explainHangUp] while a session is opened.
const explainLimit = 2 * time.Second
