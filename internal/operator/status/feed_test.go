package status

import (
	"testing"
)

func kinds(events []Event) string {
	text := ""
	for _, e := range events {
		text += e.Kind + string(e.Data) + " "
	}
	return text
}

func TestFeedIsResumed(t *testing.T) {
	f := NewFeed()
	start := f.Newest()
	events, more, known := f.Since(start)
	if len(events) != 0 || !known {
		t.Fatalf("at the start: %v %v", events, known)
	}
	f.Add("x", 1)
	<-more
	f.Add("x", 2)
	events, _, known = f.Since(start)
	if kinds(events) != "x1 x2 " || !known {
		t.Fatalf("%q %v", kinds(events), known)
	}
	if rest, _, _ := f.Since(events[0].ID); kinds(rest) != "x2 " {
		t.Errorf("from the first on: %q", kinds(rest))
	}
	if rest, _, known := f.Since(f.Newest()); len(rest) != 0 || !known {
		t.Errorf("from the last on: %q %v", kinds(rest), known)
	}
	for i := 3; i <= feedSize+2; i++ {
		f.Add("x", i)
	}
	if all, _, known := f.Since(events[1].ID); len(all) != feedSize || !known || string(all[0].Data) != "3" {
		t.Errorf("what is just kept: %d events, %v", len(all), known)
	}
	other := NewFeed()
	for i := range 10 {
		other.Add("x", i)
	}
	for _, id := range []string{"", "-", "7", start, events[0].ID, other.Newest(), f.id(f.last + 1), f.epoch + "--1", f.epoch + "-x"} {
		if got, _, known := f.Since(id); known || len(got) > 0 {
			t.Errorf("%q is known: %q", id, kinds(got))
		}
	}
}

func TestEventsOfAChange(t *testing.T) {
	at := Daemon{Phase: "standby", Elected: "a", ElectedSite: "dc1", ElectedTerm: 7, Cause: "first", Reason: "because", Holder: &Holder{"a", "dc1", 7, "READY", ""}}
	for name, c := range map[string]struct {
		change func(*Daemon)
		want   string
	}{
		"nothing":                     {func(d *Daemon) {}, ""},
		"time":                        {func(d *Daemon) { d.UpdatedAt, d.SnapshotAt, d.RespondedAt, d.LeaseEnds, d.Age = 1, 2, 3, 4, 5 }, ""},
		"the same holder, read again": {func(d *Daemon) { h := *d.Holder; d.Holder = &h }, ""},
		"a decision":                  {func(d *Daemon) { d.Elected, d.ElectedTerm = "b", 8 }, "daemon"},
		"a holder":                    {func(d *Daemon) { d.Holder = &Holder{State: "NONE"} }, ""},
		"no decision any more":        {func(d *Daemon) { d.Elected, d.ElectedTerm = "", 0 }, "daemon"},
		"a phase":                     {func(d *Daemon) { d.Phase = "leading" }, "daemon"},
		"the connection":              {func(d *Daemon) { d.Connected = true }, "daemon"},
		"a pause":                     {func(d *Daemon) { d.Paused = true }, "daemon"},
	} {
		f := NewFeed()
		start := f.Newest()
		next := at
		c.change(&next)
		f.AddChanges(at, next)
		events, _, _ := f.Since(start)
		got := ""
		for i, e := range events {
			if i > 0 {
				got += " "
			}
			got += e.Kind
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
