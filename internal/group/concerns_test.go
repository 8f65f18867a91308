package group

import (
	"errors"
	"testing"
	"time"

	"zkelectd/internal/transition"
)

// A leader that is the elector as well does not rank all members each time that its lease is renewed, unless it is time to.
func TestElectorIgnoresRenewals(t *testing.T) {
	const now = time.Hour
	for _, c := range []struct {
		name  string
		ev    transition.Event
		again time.Duration
		want  bool
	}{
		{"a renewal", transition.RenewDone{}, 0, false},
		{"a renewal before it is time", transition.RenewDone{}, now + 1, false},
		{"a renewal when it is time", transition.RenewDone{}, now, true},
		{"a refused renewal", transition.RenewDone{Err: errors.New("refused")}, 0, true},
		{"a timer", transition.Tick{}, now + 1, true},
		{"a snapshot", transition.Saw{}, now + 1, true},
	} {
		if got := concernsElector(c.ev, c.again, now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
