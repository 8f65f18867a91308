package zkserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Dynamic is an ensemble whose servers can be replaced while it runs. Every client may do so.
type Dynamic struct {
	opt     Options
	Servers []*Server // the members
	last    int       // the greatest id of a server
}

// StartDynamic starts an ensemble of n servers, and waits until all of them serve clients. The caller must stop it.
func StartDynamic(ctx context.Context, n int, opt Options) (*Dynamic, error) {
	opt.ExtraConfig = append(slices.Clone(opt.ExtraConfig), "reconfigEnabled=true", "standaloneEnabled=false")
	opt.Java = append(slices.Clone(opt.Java), "-Dzookeeper.skipACL=yes")
	d := &Dynamic{opt: opt}
	for range n {
		s, err := d.newMember()
		if err != nil {
			return nil, errors.Join(err, d.Stop())
		}
		d.Servers = append(d.Servers, s)
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, s := range d.Servers {
		g.Go(func() error { return s.join(gctx, d.Servers) })
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// newMember returns a server that does not run yet.
func (d *Dynamic) newMember() (*Server, error) {
	s, err := newServer(d.opt, "")
	if err != nil {
		return nil, err
	}
	ports, err := FreePorts(2)
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	d.last++
	s.id, s.member = d.last, fmt.Sprintf("server.%d=127.0.0.1:%d:%d:participant;127.0.0.1:%d", d.last, ports[0],
		ports[1], s.port)
	return s, os.WriteFile(filepath.Join(s.dir, "data", "myid"), fmt.Append(nil, s.id), 0o600)
}

// join starts a server that knows these members, and waits until it serves clients.
func (s *Server) join(ctx context.Context, members []*Server) error {
	for _, m := range members {
		s.extraConfig += m.member + "\n"
	}
	if err := s.writeConfig(); err != nil {
		return err
	}
	return s.Restart(ctx)
}

// Replace starts another server, makes it a member instead of an old one, and kills that. It calls between
// while both are members.
func (d *Dynamic) Replace(ctx context.Context, old *Server, between func() error) (*Server, error) {
	s, err := d.newMember()
	if err == nil {
		err = s.join(ctx, append(slices.Clone(d.Servers), s))
	}
	if err == nil {
		err = d.reconfigure(ctx, []string{s.member}, nil)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	d.Servers = append(d.Servers, s)
	if between != nil {
		if err := between(); err != nil {
			return s, err
		}
	}
	if err := d.reconfigure(ctx, nil, []string{fmt.Sprint(old.id)}); err != nil {
		return s, err
	}
	d.Servers = slices.DeleteFunc(slices.Clone(d.Servers), func(o *Server) bool { return o == old })
	return s, old.Stop()
}

// reconfigure changes the members. It repeats what has not had an answer, as when ZooKeeper's own leader is removed.
func (d *Dynamic) reconfigure(ctx context.Context, joining, leaving []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for turn := 0; ; turn++ {
		err := d.Servers[turn%len(d.Servers)].reconfigure(ctx, joining, leaving)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("reconfiguration: %w", err)
		}
	}
}

// The operations that reconfigure needs, in ZooKeeper's wire format: only package zk imports a client. The session
// expires.
const (
	opGetData  = 4
	opReconfig = 16
)

// reconfigure asks a server to change the members of its ensemble, unless they are changed already.
func (s *Server) reconfigure(ctx context.Context, joining, leaving []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	const timeout, passwordLen = 10_000, 16
	connect := binary.BigEndian.AppendUint32(make([]byte, 4+8), timeout) // protocol and zxid 0
	connect = append(connect, make([]byte, 8)...)                        // a new session
	if _, err := exchange(conn, appendText(connect, string(make([]byte, passwordLen)))); err != nil {
		return err
	}
	request := func(op uint32) []byte { return binary.BigEndian.AppendUint32(make([]byte, 4), op) }
	if config, err := exchange(conn, append(appendText(request(opGetData), "/zookeeper/config"), 0)); err != nil ||
		has(string(config), joining, leaving) {
		return err
	}
	change := appendText(appendText(request(opReconfig), strings.Join(joining, ",")), strings.Join(leaving, ","))
	change = binary.BigEndian.AppendUint32(change, 1<<32-1)                      // no list of all members
	reply, err := exchange(conn, binary.BigEndian.AppendUint64(change, 1<<64-1)) // whatever the version
	const code = 4 + 8
	if err == nil && (len(reply) < code+4 || binary.BigEndian.Uint32(reply[code:]) != 0) {
		err = fmt.Errorf("%s refuses it: % x", s.Addr(), reply)
	}
	return err
}

// exchange sends a packet and returns the next one.
func exchange(conn net.Conn, packet []byte) (reply []byte, err error) {
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(packet))), packet...)); err != nil {
		return nil, err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil, err
	}
	reply = make([]byte, min(binary.BigEndian.Uint32(head), 1<<20))
	_, err = io.ReadFull(conn, reply)
	return reply, err
}

func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
}

// has reports whether a configuration has the servers that join, and not those that leave.
func has(config string, joining, leaving []string) bool {
	lacks := func(server string) bool { return !strings.Contains(config, server) }
	stays := func(id string) bool { return strings.Contains(config, "server."+id+"=") }
	return !slices.ContainsFunc(joining, lacks) && !slices.ContainsFunc(leaving, stays)
}

// Addrs returns the client addresses of all members.
func (d *Dynamic) Addrs() []string { return (&Ensemble{d.Servers}).Addrs() }

// Stop stops all servers.
func (d *Dynamic) Stop() error { return (&Ensemble{d.Servers}).Stop() }
