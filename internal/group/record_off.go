//go:build !record

package group

import (
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/transition"
)

// The fault campaign needs recordings, and builds with -tags record. Without the tag these functions are empty, and the
// compiler removes them.

func (m *Member) recordStep(time.Duration, transition.Event, []transition.Action) {}

func (m *Member) recordDecision(cluster.Elected) {}
