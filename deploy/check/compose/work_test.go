package main

import (
	"strings"
	"testing"
)

const oneAtATime = `
time=2026-11-21T23:15:45.866Z level=INFO msg="child started" node=n1 pid=117 term=5
2026-11-21T23:15:45.8Z begins group=cluster node=n1 site=dc1 term=5
2026-11-21T23:15:46.3Z works group=cluster node=n1 site=dc1 term=5
2026-11-21T23:15:47.123456789Z begins group=cluster node=n3 site=dc2 term=6
2026-11-21T23:15:46.9Z ends group=cluster node=n1 site=dc1 term=5
`

// The work of other groups may overlap with it.
const otherGroups = `
2026-11-21T23:15:46.1Z works group=ingest/0 node=n2 site=dc1 term=9
2026-11-21T23:15:46.4Z works group=ingest/1 node=n1 site=dc1 term=5
`

func TestExclusive(t *testing.T) {
	lines, err := parse(oneAtATime)
	if err != nil || len(lines) != 4 {
		t.Fatalf("%v, %v", lines, err)
	}
	if err := exclusive(lines); err != nil {
		t.Error(err)
	}
	more, err := parse(oneAtATime + otherGroups)
	if err != nil || len(more) != 6 || exclusive(more) != nil {
		t.Errorf("%v, %v", more, err)
	}
	spans := terms(lines)
	if len(spans) != 2 || spans[0].node != "n1" || spans[0].to.Sub(spans[0].from).String() != "1.1s" || spans[1].term != 6 {
		t.Errorf("%v", spans)
	}
}

func TestTwoAtTheSameTimeAreDetected(t *testing.T) {
	for what, more := range map[string]string{
		"an old term continues": "2026-11-21T23:15:47.2Z works group=cluster node=n1 site=dc1 term=5",
		"two nodes in one term": "2026-11-21T23:15:47.2Z works group=cluster node=n4 site=dc2 term=6",
		"two nodes in a slot":   otherGroups + "2026-11-21T23:15:47.2Z works group=ingest/1 node=n4 site=dc2 term=5",
	} {
		lines, err := parse(oneAtATime + more)
		if err != nil {
			t.Fatal(err)
		}
		if err := exclusive(lines); err == nil || !strings.Contains(err.Error(), "two worked at the same time") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
