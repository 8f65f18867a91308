package cluster

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// History is the record of history: the last terms, the oldest first.
type History struct {
	Header
	Terms []PastTerm `json:"terms"`
}

// PastTerm is one decision and its outcome.
type PastTerm struct {
	Term     int64  `json:"term"`
	Node     string `json:"node"`
	Site     string `json:"site"`
	Previous string `json:"previous,omitempty"`
	Cause    Cause  `json:"cause"`
	Reason   string `json:"reason"`
	// By is the operator who requested it, empty if none did; Elector is the incarnation that decided.
	By      string `json:"by,omitempty"`
	Elector string `json:"elector"`
	// Outcome is READY, or the reason why the term never became READY.
	Outcome string `json:"outcome"`
	// ToReady is the time from the decision to READY, nil if the elector did not see both. Leaderless is how long no
	// leader's work had run before READY, nil if there was no leader before.
	ToReady    *Duration `json:"to_ready,omitempty"`
	Leaderless *Gap      `json:"leaderless,omitempty"`
	// Wait describes how long, and why, its work waited for that of an earlier leader; empty if it did not.
	Wait string `json:"wait,omitempty"`
	// Fencing has its attempts to fence earlier leaders.
	Fencing []FencingResult `json:"fencing,omitempty"`
	// Forced is set if a person has declared that no work of the term is left, see [Snapshot.CheckStuck].
	Forced *Forced `json:"forced,omitempty"`
	// Ranking holds the first verdicts.
	Ranking        []Verdict     `json:"ranking,omitempty"`
	RankingOmitted int           `json:"ranking_omitted,omitempty"`
	PolicyRevision int64         `json:"policy_revision,omitempty"`
	Circumstances  Circumstances `json:"circumstances,omitzero"`
	// Time is when the decision was made, by the elector's clock.
	Time time.Time `json:"time"`
}

// The limits of the history that is written: terms, bytes in ZooKeeper, and bytes above which it is compressed.
const (
	MaxHistory     = 256
	maxHistorySize = 128 << 10
	plainHistory   = 32 << 10
)

// The limits of a history that is read, in case another client writes more: terms, and bytes once decompressed.
const (
	maxTermsRead    = 1024
	maxDecompressed = 2 << 20
)

// Find returns the entry of a term.
func (h History) Find(term int64) (PastTerm, bool) {
	i := slices.IndexFunc(h.Terms, func(t PastTerm) bool { return t.Term == term })
	if i < 0 {
		return PastTerm{}, false
	}
	return h.Terms[i], true
}

// Merge adds the terms that an elector has seen, and drops the oldest beyond [MaxHistory]. newest is the newest term
// that the elector knows: an entry of a newer term is forged, and so is another decision in a term that the elector has
// seen. Such entries are dropped, because they could displace or replace real ones. Merge reports whether the history
// has changed.
func (h *History) Merge(terms []PastTerm, newest int64) (changed bool) {
	merged := slices.DeleteFunc(slices.Clone(h.Terms), func(p PastTerm) bool {
		i := slices.IndexFunc(terms, func(t PastTerm) bool { return t.Term == p.Term })
		return p.Term <= 0 || p.Term > newest || (i >= 0 && !terms[i].sameDecision(p))
	})
	changed = len(merged) < len(h.Terms)
	for _, t := range terms {
		if !slices.ContainsFunc(merged, func(p PastTerm) bool { return p.Term == t.Term }) {
			merged, changed = append(merged, t), true
		}
	}
	slices.SortStableFunc(merged, func(a, b PastTerm) int { return cmp.Compare(a.Term, b.Term) })
	merged = slices.CompactFunc(merged, func(a, b PastTerm) bool { return a.Term == b.Term })
	h.Terms = merged[max(0, len(merged)-MaxHistory):]
	return changed
}

// sameDecision reports whether two entries are about the same decision. Two electors may have seen different outcomes.
func (t PastTerm) sameDecision(of PastTerm) bool {
	return t.Term == of.Term && t.Node == of.Node && t.Elector == of.Elector && t.Time.Equal(of.Time)
}

// EncodeHistory encodes the history: compressed if it is large, and without the oldest terms if it would not fit.
func EncodeHistory(h *History) []byte {
	for {
		data := Encode(h)
		readable := len(data) <= maxDecompressed
		if data = compressLarge(data); (readable && len(data) <= maxHistorySize) || len(h.Terms) == 0 {
			return data
		}
		h.Terms = h.Terms[(len(h.Terms)+3)/4:]
	}
}

// compressLarge compresses a record that is large.
func compressLarge(data []byte) []byte {
	if len(data) > plainHistory {
		return compress(data)
	}
	return data
}

func compress(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(fmt.Sprintf("cluster: writing to memory: %v", err))
	}
	return b.Bytes()
}

// DecodeHistory decodes what EncodeHistory has returned. path is named in errors.
func DecodeHistory(path string, data []byte) (History, error) {
	var h History
	data, err := decompress(path, data)
	if err != nil {
		return h, err
	}
	if len(data) > maxDecompressed {
		return h, fmt.Errorf("znode %s has %d bytes, more than a history may have (%d)", path, len(data), maxDecompressed)
	}
	if err := Decode(path, data, &h); err != nil {
		return History{}, err
	}
	if len(h.Terms) > maxTermsRead {
		return History{}, fmt.Errorf("znode %s has %d terms, more than a history may have (%d)", path, len(h.Terms),
			maxTermsRead)
	}
	return h, nil
}

// decompress returns data that may be compressed, plain.
func decompress(path string, data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(r, maxDecompressed+1))
	}
	if err == nil && len(data) > maxDecompressed {
		err = fmt.Errorf("it decompresses to more than %d bytes", maxDecompressed)
	}
	if err != nil {
		return nil, fmt.Errorf("znode %s cannot be decompressed: %w", path, err)
	}
	return data, nil
}
