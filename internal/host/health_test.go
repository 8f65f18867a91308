package host

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
)

func TestAverageIsPublishedWhenItMoves(t *testing.T) {
	for name, c := range map[string]struct {
		least  float64
		values []float64
		// moved has a y for each value that must be published.
		moved string
		shown float64
	}{
		"the same":                {0, []float64{10, 10, 10}, "ynn", 10},
		"a little":                {0, []float64{10, 12, 12}, "yny", 11.02},
		"below the least":         {0.5, []float64{1, 2, 2}, "yny", 1.51},
		"a tenth, not the least":  {3, []float64{10, 14, 14}, "ynn", 10},
		"the least, not a tenth":  {0.5, []float64{100, 103}, "yn", 100},
		"negative ones":           {0, []float64{-10, -11, -20}, "yny", -13.21},
		"from nothing":            {0, []float64{0, 1}, "yy", 0.3},
		"rounded to a thousandth": {0, []float64{1.23456}, "y", 1.235},
	} {
		var a average
		if a.rounded() != nil {
			t.Fatal("known before the first value")
		}
		moved := ""
		for _, x := range c.values {
			if a.add(x, c.least) {
				moved += "y"
			} else {
				moved += "n"
			}
		}
		if got := a.rounded(); moved != c.moved || got == nil || math.Abs(*got-c.shown) > 1e-9 {
			t.Errorf("%s: moved %q, shows %v; want %q, %v", name, moved, *got, c.moved, c.shown)
		}
	}
}

func TestHealthIsInTheNodeRecord(t *testing.T) {
	var c config.Config
	h := newHealth(c, slog.New(slog.DiscardHandler))
	var n cluster.Node
	if h.Fill(&n); n.Unhealthy != "" || n.Latency != nil || n.Score != nil {
		t.Errorf("a host without probes: %+v", n)
	}
	c.Health.TCP = "127.0.0.1:1"
	h = newHealth(c, slog.New(slog.DiscardHandler))
	if h.Fill(&n); n.Unhealthy != "not probed yet" {
		t.Errorf("before the first try: %+v", n)
	}
	changes := 0
	h.onChange = func() { changes++ }
	h.onMeasured = h.onChange
	for range 3 {
		h.update(h.onMeasured, func() bool { return h.score.add(5, 0) })
		h.ObserveRead(0, 2500*time.Microsecond)
	}
	if h.Fill(&n); *n.Score != 5 || *n.Latency != 2.5 {
		t.Errorf("%+v", n)
	}
	if changes != 2 {
		t.Errorf("%d changes are published", changes)
	}
	h.setUnhealthy(errors.New("no disk"))
	h.setUnhealthy(errors.New("no disk"))
	if h.UnhealthyReason() != "no disk" || changes != 3 {
		t.Errorf("%q, %d changes are published", h.UnhealthyReason(), changes)
	}
	h.onMeasured = nil // a host with many groups
	h.update(h.onMeasured, func() bool { return h.score.add(50, 0) })
	var many cluster.Node
	if h.Fill(&many); many.Unhealthy != "no disk" || many.Latency != nil || many.Score != nil || changes != 3 {
		t.Errorf("%+v, %d changes are published", many, changes)
	}
	if h.measured(&many); many.Latency == nil || *many.Score <= 5 {
		t.Errorf("measured: %+v", many)
	}
}

func TestWholeScoresAreNotRounded(t *testing.T) {
	for x, want := range map[float64]float64{1<<53 - 21: 1<<53 - 21, -(1<<53 - 21): -(1<<53 - 21), 2.0004: 2, 2.0006: 2.001} {
		var a average
		a.add(x, 0)
		if got := a.rounded(); *got != want {
			t.Errorf("%v is published as %v, want %v", x, *got, want)
		}
	}
}
