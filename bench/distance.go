package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// distance is how long it takes to a server on another site and back, in the part distant.
const distance = 10 * time.Millisecond

// distant measures what handover does, with ZooKeeper on another site. There the number of round trips decides, not what a processor does.
func distant(ctx context.Context, t *table, binary string, rounds int) error {
	return compareWithLock(ctx, t, contestOptions{binary: binary, rounds: rounds, distance: distance})
}

// farServer forwards connections to a server as if that was far away: it holds all data for half of the distance, in both directions. Its
// creator must close it.
type farServer struct {
	target   string
	oneWay   time.Duration
	listener net.Listener
	wg       sync.WaitGroup
}

func newFarServer(target string, distance time.Duration) (*farServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &farServer{target: target, oneWay: distance / 2, listener: listener}
	f.wg.Go(f.accept)
	return f, nil
}

// Addr returns host:port.
func (f *farServer) Addr() string { return f.listener.Addr().String() }

// close ends the listener, and waits until all connections have ended: their clients or the server must end first.
func (f *farServer) close() {
	f.listener.Close()
	f.wg.Wait()
}

func (f *farServer) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", f.target)
		if err != nil {
			client.Close()
			continue
		}
		f.wg.Go(func() { f.forward(client, server) })
		f.wg.Go(func() { f.forward(server, client) })
	}
}

// parcel is data on its way.
type parcel struct {
	due  time.Time
	data []byte
}

// forward forwards one direction. What comes meanwhile is under way at the same time.
func (f *farServer) forward(from, to net.Conn) {
	way := make(chan parcel, 1024)
	f.wg.Go(func() {
		defer to.Close()
		for p := range way {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		for range way { // the reader must not block
		}
	})
	defer close(way)
	defer from.Close()
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if n > 0 {
			way <- parcel{time.Now().Add(f.oneWay), buf[:n]}
		}
		if err != nil {
			return
		}
	}
}
