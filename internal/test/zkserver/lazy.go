package zkserver

import (
	"context"
	"sync"
	"time"
)

// Lazy is a server that is started when it is first used: for the tests of a package that do not damage it.
type Lazy struct {
	once   sync.Once
	server *Server
	err    error
}

// Addr starts the server if necessary and returns its address.
func (l *Lazy) Addr() string {
	l.once.Do(func() { l.server, l.err = Start(context.Background(), Options{Tick: 100 * time.Millisecond}) })
	if l.err != nil {
		panic(l.err)
	}
	return l.server.Addr()
}

// Stop stops the server if it was started.
func (l *Lazy) Stop() error {
	if l.server == nil {
		return nil
	}
	return l.server.Stop()
}
