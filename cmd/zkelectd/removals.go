package main

import (
	"os"
	"os/signal"
	"sync"
)

// serveRemovals makes signalAllowingRemovals a reload that may remove any number of groups, until stop is called.
func (s *daemonSettings) serveRemovals(reload func()) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, signalAllowingRemovals)
	var serving sync.WaitGroup
	serving.Go(func() {
		for range signals {
			s.allowRemovals.Store(true) // for one reload
			reload()
		}
	})
	return func() {
		signal.Stop(signals)
		close(signals)
		serving.Wait()
	}
}
