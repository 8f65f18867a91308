package memlock

import (
	"runtime"
	"sync"
)

// startThreads has the Go runtime start n threads. It never ends an idle one, and takes these before it starts another. It
// ends the process if it cannot start a thread, as with pids.max reached.
func startThreads(n int) {
	var held, released sync.WaitGroup
	held.Add(n)
	release := make(chan struct{})
	for range n {
		released.Go(func() {
			runtime.LockOSThread() // no two goroutines on one thread
			held.Done()
			<-release
			runtime.UnlockOSThread()
		})
	}
	held.Wait()
	close(release)
	released.Wait()
}
