package host

import (
	"math/rand/v2"
	"time"
)

// pacing says how long to wait between two runs of what must always run: from first on, twice as long after each short run, at most
// limit. A run that took longer than stable starts the pauses anew.
type pacing struct{ first, limit, stable time.Duration }

// next is what follows a run.
type next int

const (
	over   next = iota // nothing
	again              // another run, after a pause
	atOnce             // another run
)

// supervise calls run until that is over, and await between two runs. The pauses have jitter: what was interrupted on many hosts
// together does not begin at the same time.
func supervise(p pacing, run func() next, await func(time.Duration)) {
	for pause := p.first; ; {
		began := time.Now()
		switch run() {
		case over:
			return
		case atOnce:
			continue
		}
		if time.Since(began) > p.stable {
			pause = p.first
		}
		await(pause/2 + rand.N(pause))
		pause = min(2*pause, p.limit)
	}
}
