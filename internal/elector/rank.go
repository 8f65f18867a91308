package elector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/policy"
)

// rank ranks the members under the exclusions. If those leave nobody, they are lifted (L3): all but that of the last
// failure, then all. What is returned as exclusions is what the next decision must record.
func (e *Elector) rank(in Input, v verdict, exclusions []cluster.Exclusion) (policy.Ranking, []cluster.Exclusion, time.Duration) {
	s := &in.Snapshot
	pin := policy.Input{Members: s.Members, Barred: map[string]string{}}
	if v.barred {
		pin.Barred[s.Elected.Record.Incarnation] = "it is stopping on request"
	}
	if !v.over {
		pin.Incumbent = s.Elected.Record.Incarnation
	}
	pin.Excluded = excluded(exclusions)
	strict := in.Policy.Rank(pin)
	if _, ok := strict.Best(); ok || len(pin.Excluded) == 0 {
		return strict, exclusions, 0
	}
	wake := time.Duration(0)
	last := latest(exclusions)
	for _, spared := range []string{last, ""} {
		lifted := cluster.Serve(exclusions, func(x cluster.Exclusion) bool { return x.Node != spared })
		pin.Excluded = excluded(lifted)
		wait := e.retries(in, lifted, pin.Excluded)
		wake = earlier(wake, wait)
		if r := in.Policy.Rank(pin); allowed(r) {
			// Who must wait stays excluded, lest it preempt the one that is let in.
			return r, cluster.Serve(exclusions, func(x cluster.Exclusion) bool { return pin.Excluded[x.Node] == "" }), wake
		}
	}
	return strict, exclusions, wake
}

func allowed(r policy.Ranking) bool {
	_, ok := r.Best()
	return ok
}

// excluded maps the excluded nodes to the reason.
func excluded(list []cluster.Exclusion) map[string]string {
	m := make(map[string]string)
	for _, x := range list {
		if !x.Served {
			m[x.Node] = fmt.Sprintf("excluded for %s after strike %d: %s", x.For, x.Strikes, x.Reason)
		}
	}
	return m
}

// latest is the node whose strike came last.
func latest(list []cluster.Exclusion) string {
	if len(list) == 0 {
		return ""
	}
	return slices.MaxFunc(list, func(a, b cluster.Exclusion) int { return int(a.Term - b.Term) }).Node
}

// retries keeps those out for a moment whom the amnesty would let back in at once, time after time: a task that cannot
// start anywhere must not burn terms. It returns when the first of them may try again.
func (e *Elector) retries(in Input, list []cluster.Exclusion, out map[string]string) time.Duration {
	var wake time.Duration
	for i, x := range list {
		if _, already := out[x.Node]; already {
			continue
		}
		age := in.Now - e.overSince // a strike that is not written down yet
		if i < len(in.Age) && in.Exclusions[i].Term == x.Term {
			age = in.Age[i]
		}
		if wait := retryDelay(x.Strikes) - age; wait > 0 {
			out[x.Node] = fmt.Sprintf("tries again after %s: %s", retryDelay(x.Strikes), x.Reason)
			wake = earlier(wake, in.Now+wait)
		}
	}
	return wake
}

// retryDelay is none for a first strike, then doubles from half a second to half a minute.
func retryDelay(strikes int) time.Duration {
	if strikes <= 1 {
		return 0
	}
	return min(500*time.Millisecond<<min(strikes-2, 10), 30*time.Second)
}

// refusals says why nobody may lead.
func refusals(r policy.Ranking) string {
	if len(r.Entries) == 0 {
		return "no member is registered"
	}
	var all []string
	for _, entry := range r.Entries[:min(len(r.Entries), 5)] {
		all = append(all, entry.Member.ID+": "+entry.Refused)
	}
	if more := len(r.Entries) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}
