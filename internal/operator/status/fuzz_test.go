package status

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"zkelectd/internal/cluster"
)

// The answer may come from another program: it adds at most a lease that the leader can have.
func FuzzWithLease(f *testing.F) {
	f.Add(`{"node":"a","root":"/c","term":7,"lease_remaining":"1.5s"}`)
	f.Add(`{"node":"b","root":"/c","term":7,"lease_remaining":"1.5s"}`)
	f.Add(`{"node":"a","root":"/c","term":7,"lease_remaining":"-1ns"} {`)
	f.Fuzz(func(t *testing.T, answer string) {
		before := Group{Root: "/c", Leader: "a", Term: 7}
		after := before.WithLeaderView(strings.NewReader(answer))
		if after.LeaseRemaining < 0 || (after.LeaseRemaining > 0 && !strings.Contains(answer, "a")) {
			t.Errorf("%q: %s", answer, after.LeaseRemaining)
		}
		after.LeaseRemaining = 0
		if after.Table(); after.Leader != before.Leader || after.Term != before.Term {
			t.Errorf("%q: %+v", answer, after)
		}
	})
}

// Text in records reaches the terminal without control sequences.
func FuzzTable(f *testing.F) {
	f.Add("n1", "\x1b[2J\x1b]0;title\x07", "a\rb\u009b31m\u202e")
	f.Add("<img onerror=x>", "\x00\xff", "\u2028\x7f")
	f.Fuzz(func(t *testing.T, id, site, words string) {
		readable := cluster.Stat{Owner: 1}
		s := cluster.Snapshot{
			Members: []cluster.Member{{Incarnation: cluster.Incarnation{Name: id + "-n_0000000001", ID: id, Seq: 1}, Node: cluster.Stored[cluster.Node]{
				Exists: true, Stat: readable, Record: cluster.Node{ID: id, Site: site, Host: words, Unhealthy: words, Ineligible: words, Refused: words, PolicyDigest: words}}}},
			Elected: cluster.Stored[cluster.Elected]{Exists: true, Record: cluster.Elected{Term: 7, Node: id, Site: site, Incarnation: id + "-n_0000000001",
				Cause: cluster.Cause(words), Reason: words, RequestedBy: words, By: words, Ranking: []cluster.Verdict{{Node: id, Site: site, Reason: words}},
				Exclusions: []cluster.Exclusion{{Node: words, Reason: words, For: 1}}}},
			Control: cluster.Stored[cluster.Control]{Exists: true, Record: cluster.Control{Pause: &cluster.Pause{Request: cluster.Request{By: words, Reason: words}},
				Cordons: []cluster.Cordon{{Node: id, Request: cluster.Request{By: words}}, {Site: site, Request: cluster.Request{Reason: words}}}}},
			Current: cluster.Stored[cluster.Current]{Exists: true, Stat: readable, Record: cluster.Current{Term: 7, Node: id, Site: site, State: cluster.CurrentReady}},
			Roster: cluster.Stored[cluster.Roster]{Exists: true, Record: cluster.Roster{Nodes: []cluster.RosterNode{
				{ID: words, Site: site}, {ID: site, Site: words, Left: &cluster.Left{How: cluster.LeftHow(words), Time: time.Unix(1, 0)}}}}},
			Policy: cluster.Stored[cluster.Policy]{Exists: true, Record: cluster.Policy{By: words, Rules: cluster.Rules{Type: words}}},
		}
		table := Of("c", "/c", s).Table()
		for _, r := range table {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%q %q %q: the table holds %q:\n%q", id, site, words, r, table)
			}
		}
	})
}

// Without a good answer the lease of a READY leader is not confirmed, for a reason.
func TestUnconfirmedLease(t *testing.T) {
	const other = "h:1 answers, but not as a in term 7 of /c"
	for answer, why := range map[string]string{
		`{"node":"a","root":"/c","term":7,"lease_remaining":"1.5s","answer":true}`:      "",
		`{"node":"a","root":"/c","term":7,"answer":false,"reason":"the lease is over"}`: "a answers: the lease is over",
		`{"node":"a","root":"/c","term":7,"lease_remaining":"0s"}`:                      "a answers: it has no lease",
		`{"node":"a","root":"/c","term":7,"lease_remaining":"-1.5s"}`:                   other,
		`{"node":"a","root":"/c","term":7,"lease_remaining":"750s"}`:                    "a answers: it has no lease",
		`{"node":"b","root":"/c","term":7,"lease_remaining":"1.5s"}`:                    other,
		`{"node":"a","root":"/d","term":7,"lease_remaining":"1.5s"}`:                    other,
		`{"node":"a","root":"/c","term":6,"lease_remaining":"1.5s"}`:                    other,
		`{"node":"a","term":7,"lease_remaining":"1.5s"}`:                                other,
		`{"node":"a","root":"/c","term":7,"lease_remaining":"1.5`:                       other,
		`<html>`: other,
	} {
		for state, want := range map[string]string{"READY": why, "PROGRESS": ""} {
			got := (Group{State: state, Root: "/c", Leader: "a", Term: 7, API: "h:1"}).WithLeaderView(strings.NewReader(answer))
			if confirmed := time.Duration(got.LeaseRemaining) == 1500*time.Millisecond; confirmed != (why == "") || !confirmed && got.LeaseRemaining != 0 {
				t.Errorf("%s: %s left", answer, got.LeaseRemaining)
			}
			if got.LeaseUnconfirmed != want || want != "" && !strings.Contains(got.Table(), "\nLease    not confirmed: "+want+"\n") {
				t.Errorf("%s, %s: %q", answer, state, got.LeaseUnconfirmed)
			}
		}
	}
}

// Only the leader knows whether its work can be killed.
func TestUnkillableWorkIsAProblem(t *testing.T) {
	const own = `{"node":"a","root":"/c","term":7,"unkillable":"process 9 runs as user 0"}`
	g := Group{Root: "/c", Leader: "a", Term: 7, Problems: []string{"another"}}
	got := g.WithLeaderView(strings.NewReader(own)).Table()
	if !strings.Contains(got, "Problem  the work of a can't be killed, and a releases nothing while it runs: process 9 runs as user 0\n") || !strings.Contains(got, "another") {
		t.Error(got)
	}
	for _, answer := range []string{strings.Replace(own, `"a"`, `"b"`, 1), strings.Replace(own, "7", "6", 1), `{"node":"a","root":"/c","term":7}`} {
		if got := g.WithLeaderView(strings.NewReader(answer)); len(got.Problems) != 1 {
			t.Errorf("%s: %q", answer, got.Problems)
		}
	}
}

// Only the leader knows whom it is fencing.
func TestFencingUnderWay(t *testing.T) {
	const own = `{"node":"b","root":"/c","term":7,"fencing":{"node":"a","for":"1.234s"}}`
	g := Group{Root: "/c", Leader: "b", Term: 7}
	if got := g.WithLeaderView(strings.NewReader(own)).Waiting; got != "b has been fencing a for 1.2s" {
		t.Error(got)
	}
	g.Waiting = "waits 3s"
	if got := g.WithLeaderView(strings.NewReader(own)).Waiting; got != "waits 3s; b has been fencing a for 1.2s" {
		t.Error(got)
	}
	if got := g.WithLeaderView(strings.NewReader(strings.Replace(own, `"b"`, `"n"`, 1))).Waiting; got != "waits 3s" {
		t.Error(got)
	}
	view := Daemon{Fencing: &Fencing{Node: "a", Since: time.Second}}
	if view.At(3*time.Second).Fencing.For != cluster.Duration(2*time.Second) || view.Fencing.For != 0 {
		t.Errorf("%+v", view.Fencing)
	}
}
