package zk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"zkelectd/internal/cluster"
)

// ServerInfo is what one server has answered.
type ServerInfo struct {
	// Connect is how long it took to connect, 0 if that failed, Open to open a session and Close to close it again. The
	// ensemble agrees on both, so they include a write by a quorum.
	Connect, Open, Close time.Duration
	// Granted is the session timeout that the server grants.
	Granted time.Duration
	// Version and Mode are from the command srvr, which a server may refuse: then StatusErr says why they are empty.
	// The version of a server that is not ZooKeeper begins with its name.
	Version, Mode string
	StatusErr     error
}

// InspectServer opens and closes a session at one address of a server, see [ServerAddresses], and reads its version and
// mode. An error means that this server would not serve a daemon now.
func InspectServer(ctx context.Context, access Access, server, address string, timeout time.Duration,
) (ServerInfo, error) {
	var info ServerInfo
	ids, err := access.identities()
	if err != nil {
		return info, err
	}
	u := sessionCloser{dial: access.dialer().at(address), sasl: access.SASL, identities: ids, timeout: timeout}
	if err := u.inspect(ctx, server, &info); err != nil && info.Connect == 0 {
		return info, err
	} else if err != nil {
		return info, explainHangUp(ctx, u.dial, access.TLS.Enabled, server, err)
	}
	text, err := askStatus(ctx, u.dial, server)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		info.StatusErr = err
		return info, nil
	}
	info.Version, info.Mode, info.StatusErr = parseStatus(text)
	return info, nil
}

// inspect opens a session at a server, presents the identities and closes it.
func (u sessionCloser) inspect(ctx context.Context, server string, info *ServerInfo) error {
	start := time.Now()
	conn, hangUp, err := u.connect(ctx, server)
	if err != nil {
		return err
	}
	defer hangUp()
	connected := time.Now()
	info.Connect = connected.Sub(start)
	h, err := u.open(conn)
	opened := time.Now()
	if err == nil {
		err = u.present(ctx, conn, server)
	}
	presented := time.Now()
	if err == nil {
		err = call(conn, 1, wireOpClose, nil)
	}
	if err != nil {
		return errors.Join(err, ctx.Err())
	}
	info.Open, info.Close, info.Granted = opened.Sub(connected), time.Since(presented), h.timeout
	return nil
}

// maxStatus bounds the answer to srvr.
const maxStatus = 16 << 10

// parseStatus returns the version and the mode (leader, follower, observer or standalone) from the answer to srvr.
func parseStatus(text string) (version, mode string, err error) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Zookeeper version":
			version, _, _ = strings.Cut(value, ",")
			version, _, _ = strings.Cut(version, "-")
		case "ClickHouse Keeper version":
			version, _, _ = strings.Cut("ClickHouse Keeper "+value, "-")
		case "Mode":
			mode = value
		}
	}
	switch {
	case version != "" && mode != "":
		return version, mode, nil
	case strings.Contains(text, "whitelist"):
		return "", "", errors.New("the server does not permit the command srvr (4lw.commands.whitelist)")
	}
	return "", "", errors.New("the server does not answer the command srvr")
}

// WriteProof is the result of a write that a quorum of the servers has accepted.
type WriteProof struct {
	// Sent and Answered are by this host's clock, Time is by that of the server that ordered the write.
	Sent, Answered, Time time.Time
}

// ProveWrite creates an ephemeral in the group's root, reads it, and removes it. Its name is that of the ephemerals of
// [Session.ApplyACLs], which daemons ignore.
func (s *Session) ProveWrite(ctx context.Context, p cluster.Paths) (WriteProof, error) {
	proof := WriteProof{Sent: time.Now()}
	results, err := s.Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: p.ACLProbe(), Data: []byte{}, Ephemeral: true,
		Sequential: true})
	proof.Answered = time.Now()
	if err != nil {
		return proof, fmt.Errorf("cannot create a znode below %s: %w", p.Root, err)
	}
	path := results[0].Path
	_, stat, err := s.Get(ctx, path, false)
	_, removeErr := s.Do(ctx, cluster.Op{Kind: cluster.OpDelete, Path: path, Version: cluster.AnyVersion})
	proof.Time = stat.Time
	if err := errors.Join(err, removeErr); err != nil {
		return proof, fmt.Errorf("cannot read and remove znode %s: %w", path, err)
	}
	return proof, nil
}
