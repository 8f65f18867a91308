package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// EarlierHolder is a holder whose lease may still be running when another member acquires leadership. A candidate waits
// for each of them, or fences its node (docs/protocol.md, Fencing).
type EarlierHolder struct {
	// Node is empty if it is not known who held leadership: nobody can fence that holder.
	Node string `json:"node,omitempty"`
	Site string `json:"site,omitempty"`
	Host string `json:"host,omitempty"`
	API  string `json:"api,omitempty"`
	Term int64  `json:"term,omitempty"`
	// Wait is by when its lease is over, counted from the reply to the candidate's ACQUIRE.
	Wait Duration `json:"wait"`
	// Fenced is set once the node has been fenced after that term.
	Fenced bool `json:"fenced,omitempty"`
}

// FencingResult is one attempt of a holder to fence an earlier one.
type FencingResult struct {
	Node string `json:"node"`
	// Term is the last one that the node held.
	Term int64 `json:"term"`
	// By describes what has fenced it. Error is empty if it succeeded.
	By    string `json:"by,omitempty"`
	Error string `json:"error,omitempty"`
}

// String describes the attempt.
func (r FencingResult) String() string {
	if r.Error != "" {
		return "could not fence " + r.Node + ": " + r.Error
	}
	return "fenced " + r.Node + " by " + r.By
}

// The limits of what a fence says about fencing.
const (
	MaxEarlier     = 16
	MaxFencingText = 300
)

// FencingText shortens a text to [MaxFencingText] bytes.
func FencingText(s string) string {
	if len(s) <= MaxFencingText {
		return s
	}
	return s[:MaxFencingText-3] + "..."
}

// Earlier returns the holders for which a candidate must wait, the oldest first. The longest of their waits is what
// [Snapshot.Owed] returns. One that only has to be fenced has no wait.
func (s *Snapshot) Earlier(own time.Duration) []EarlierHolder {
	wait, _ := s.Owed(own)
	f := s.Fence.Record
	switch {
	case wait == 0 && (f.State == FenceReleased || len(f.Earlier) == 0 && f.State != FenceSilent):
		return nil
	case !s.Fence.Readable():
		return []EarlierHolder{{Wait: Duration(wait)}}
	}
	list := slices.Clone(f.Earlier)
	if f.Owed > LongestWait(list) { // nothing says for whom
		list = append(list, EarlierHolder{Wait: f.Owed})
	}
	switch f.State {
	case FenceUnclean: // the work of the holder that the fence names is dead
	case FenceSilent: // its lease is over, but its host may have to be fenced all the same
		list = append(list, f.holder(0))
	default: // its lease may still be running
		list = append(list, f.holder(max(f.LeaseWait, Duration(own))))
	}
	return MergeEarlier(list)
}

// holder returns the holder of the fence as an earlier one.
func (f *Fence) holder(wait Duration) EarlierHolder {
	return EarlierHolder{Node: f.Node, Site: f.Site, Host: f.Host, API: f.API, Term: f.Term, Wait: wait}
}

// LongestWait returns the longest wait of all.
func LongestWait(list []EarlierHolder) (longest Duration) {
	for _, h := range list {
		longest = max(longest, h.Wait)
	}
	return longest
}

// Is reports whether both are about one node on one host. Another host with the same id is another one: fencing one of
// them says nothing about the other (S1).
func (h EarlierHolder) Is(node, host string) bool { return h.Node == node && h.Host == host }

// MergeEarlier returns the list with one entry for each node on each host, and the oldest entries merged into one of no
// node if there are more than [MaxEarlier]. No wait gets shorter. list is not changed.
func MergeEarlier(list []EarlierHolder) []EarlierHolder {
	var merged []EarlierHolder
	for _, h := range list {
		i := slices.IndexFunc(merged, func(m EarlierHolder) bool { return m.Is(h.Node, h.Host) })
		if i < 0 {
			merged = append(merged, h)
			continue
		}
		m := merged[i]
		if h.Term < m.Term {
			h, m = m, h
		}
		h.Wait, h.Fenced = max(h.Wait, m.Wait), h.Fenced && m.Fenced
		merged[i] = h
	}
	if len(merged) <= MaxEarlier {
		return merged
	}
	cut := len(merged) - MaxEarlier + 1
	rest := append([]EarlierHolder{{Wait: LongestWait(merged[:cut])}}, merged[cut:]...)
	return MergeEarlier(rest)
}

// validateFencing checks what a fence says about earlier holders. Their waits are part of Owed.
func (f *Fence) validateFencing() error {
	if len(f.Earlier) > MaxEarlier || len(f.Fencing) > MaxEarlier {
		return fmt.Errorf("%d earlier holders, %d attempts to fence one: more than %d", len(f.Earlier),
			len(f.Fencing), MaxEarlier)
	}
	errs := []error{checkWait("fencing_limit", f.FencingLimit)}
	for _, h := range f.Earlier {
		errs = append(errs, checkWait("wait", h.Wait))
		if h.Wait > f.Owed {
			errs = append(errs, fmt.Errorf("the wait for %q is %s, longer than the %s that are owed", h.Node, h.Wait, f.Owed))
		}
	}
	return errors.Join(errs...)
}

// HasFenced reports whether the holder that this fence describes has fenced the node.
func (f *Fence) HasFenced(node string) bool {
	return slices.ContainsFunc(f.Fencing, func(r FencingResult) bool { return r.Node == node && r.Error == "" })
}

// TakeoverLimit returns how long the takeover of this holder may wait before its work starts: for the leases of earlier
// holders, or until they are fenced.
func (f *Fence) TakeoverLimit() time.Duration {
	return time.Duration(max(f.Owed, f.FencingLimit))
}
