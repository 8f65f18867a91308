package harden

import (
	"runtime"
	"sync"
)

// startThreads makes the Go runtime start n threads. The runtime keeps idle threads and uses them before it starts new
// ones; when it cannot start one, for example because pids.max is reached, it ends the process.
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
