package cluster

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const historyPath = "/c/history"

func past(term int64) PastTerm {
	ready := Duration(2 * time.Second)
	return PastTerm{
		Term: term, Node: "a", Site: "dc1", Previous: "b", Cause: CauseFailure, Reason: fmt.Sprintf("reason %d", term), By: "ann@host",
		Elector: "b-0000000000000001-n_0000000001", Outcome: "READY", ToReady: &ready, Leaderless: AtLeast(0), PolicyRevision: 3,
		Circumstances: Circumstances{Cause: CauseFailure, Node: "b", Site: "dc2", Failed: []string{"dc2"}}, Time: noon,
	}
}

func termsOf(h History) []int64 {
	var terms []int64
	for _, t := range h.Terms {
		terms = append(terms, t.Term)
	}
	return terms
}

// add merges a term that is the newest one.
func (h *History) add(t PastTerm) { h.Merge([]PastTerm{t}, math.MaxInt64) }

func TestHistoryIsSortedByTerm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.SliceOf(rapid.Int64Range(1, 400)).Draw(t, "terms")
		var h History
		known := make(map[int64]bool)
		for _, term := range terms {
			before := slices.Clone(h.Terms)
			shared := h
			if h.Merge([]PastTerm{{Term: term}}, 400) == known[term] && len(h.Terms) < MaxHistory {
				t.Fatalf("term %d changes it: %t", term, known[term])
			}
			known[term] = true
			if !reflect.DeepEqual(before, slices.Clone(shared.Terms)) {
				t.Fatal("a copy was changed")
			}
		}
		got := termsOf(h)
		if !slices.IsSorted(got) || len(got) != min(len(known), MaxHistory) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("%v of %v", got, terms)
		}
	})
}

// Of two entries about one decision the first stays; one about another decision in the same term is forged.
func TestKnownTermsAreNotReplaced(t *testing.T) {
	var h History
	h.add(PastTerm{Term: 7, Node: "a", Elector: "e", Time: noon, Outcome: "READY"})
	if h.Merge([]PastTerm{{Term: 7, Node: "a", Elector: "e", Time: noon.Local(), Outcome: "never READY"}}, 9) || h.Terms[0].Outcome != "READY" {
		t.Errorf("%+v", h.Terms)
	}
	for name, other := range map[string]PastTerm{
		"node": {Term: 7, Node: "b", Elector: "e", Time: noon}, "elector": {Term: 7, Node: "a", Elector: "f", Time: noon},
		"time": {Term: 7, Node: "a", Elector: "e", Time: noon.Add(1)},
	} {
		forged := h
		if !forged.Merge([]PastTerm{other}, 9) || len(forged.Terms) != 1 || !forged.Terms[0].sameDecision(other) {
			t.Errorf("another %s: %+v", name, forged.Terms)
		}
	}
	if _, ok := h.Find(8); ok {
		t.Error("found a term that does not exist")
	}
}

// Forged terms, in any order, suppress none of the real ones.
func TestForgedTermsDoNotSuppressLaterOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const newest = 1000
		var h History
		for i, term := range rapid.SliceOfN(rapid.OneOf(rapid.Int64(), rapid.Int64Range(newest-300, newest+600)), 0, maxTermsRead).Draw(t, "forged") {
			h.Terms = append(h.Terms, PastTerm{Term: term, Node: fmt.Sprint("evil", i)})
		}
		for term := int64(newest); term < newest+10; term++ {
			happened := past(term)
			h.Merge([]PastTerm{happened}, term)
			if last := h.Terms[len(h.Terms)-1]; !last.sameDecision(happened) || !slices.IsSorted(termsOf(h)) || len(h.Terms) > MaxHistory {
				t.Fatalf("the last of %v is %+v", termsOf(h), last)
			}
		}
	})
}

func TestHistoryRoundTrip(t *testing.T) {
	for name, n := range map[string]int{"nothing": 0, "one": 1, "plain": 10, "packed": MaxHistory} {
		var h History
		for i := range n {
			h.add(past(int64(i + 1)))
		}
		h.Terms = slices.Clip(h.Terms)
		data := EncodeHistory(&h)
		if packed := bytes.HasPrefix(data, []byte{0x1f, 0x8b}); packed != (name == "packed") {
			t.Errorf("%s: %d bytes, compressed: %t", name, len(data), packed)
		}
		again, err := DecodeHistory(historyPath, data)
		if err != nil || len(again.Terms) != n || (n > 0 && !reflect.DeepEqual(again.Terms, h.Terms)) {
			t.Errorf("%s: %v, %d terms", name, err, len(again.Terms))
		}
	}
}

func noise(r *rand.Rand, n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

// If the history does not compress well, the oldest terms are dropped so that it fits into the znode.
func TestTheHistoryFitsIntoAZnode(t *testing.T) {
	for name, c := range map[string]struct{ terms, size int }{
		"long verdicts": {MaxHistory, 100}, "longer verdicts": {MaxHistory, 300}, "each too large": {3, 60_000},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		var h History
		for i := range c.terms {
			term := past(int64(i + 1))
			for range 12 {
				term.Ranking = append(term.Ranking, Verdict{Node: noise(r, 12), Site: noise(r, 8), Incarnation: noise(r, 24), Rank: 1, Reason: noise(r, c.size)})
			}
			h.add(term)
		}
		data := EncodeHistory(&h)
		if len(data) >= 512<<10 {
			t.Fatalf("%s: %d bytes", name, len(data))
		}
		again, err := DecodeHistory(historyPath, data)
		if err != nil || len(again.Terms) != len(h.Terms) {
			t.Fatalf("%s: %v, %d terms of %d", name, err, len(again.Terms), len(h.Terms))
		}
		if n := len(again.Terms); n > 0 && again.Terms[n-1].Term != int64(c.terms) {
			t.Errorf("%s: the newest of %d terms is %d", name, n, again.Terms[n-1].Term)
		}
		if name == "longer verdicts" && len(again.Terms) < c.terms/8 {
			t.Errorf("%s: only %d terms remain", name, len(again.Terms))
		}
	}
}

// Fields of a newer version may be what does not fit: then there are no terms left to drop.
func TestAHistoryWithoutTermsIsWrittenUnchanged(t *testing.T) {
	h := History{Header: Header{Unknown: map[string]json.RawMessage{"x": json.RawMessage(`"` + noise(rand.New(rand.NewPCG(1, 2)), 700<<10) + `"`)}}}
	h.add(past(1))
	again, err := DecodeHistory(historyPath, EncodeHistory(&h))
	if err != nil || len(again.Terms) != 0 || len(again.Unknown["x"]) != 700<<10+2 {
		t.Errorf("%v, %d terms", err, len(again.Terms))
	}
}

func packed(t testing.TB, parts ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestATooLargeHistoryIsRejected(t *testing.T) {
	terms := func(n int, text string) []byte {
		return []byte(`{"v":1,"terms":[{"term":1,"reason":"` + text + `"}` + strings.Repeat(`,{"term":1}`, n-1) + `]}`)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"as many as can be": {terms(1024, ""), ""}, "too many": {terms(1025, ""), "has 1025 terms, more than a history may have (1024)"},
		"too many, packed": {packed(t, terms(1025, "")), "has 1025 terms"}, "too long": {terms(1, strings.Repeat("x", 2<<20)), "more than a history may have (2097152)"},
		"too long, packed": {packed(t, terms(1, strings.Repeat("x", 2<<20))), "decompresses to more than 2097152 bytes"},
	} {
		h, err := DecodeHistory(historyPath, c.data)
		if (c.want == "") != (err == nil) || (err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), historyPath) || len(h.Terms) > 0)) {
			t.Errorf("%s: %v, %d terms", name, err, len(h.Terms))
		}
	}
}

// A history that compresses well fits into the znode, but must not be larger than what can be read again.
func TestAWrittenHistoryCanBeRead(t *testing.T) {
	var h History
	for i := range MaxHistory {
		term := past(int64(i + 1))
		term.Reason = strings.Repeat("x", 20_000)
		h.add(term)
	}
	again, err := DecodeHistory(historyPath, EncodeHistory(&h))
	if err != nil || len(again.Terms) < 50 || again.Terms[len(again.Terms)-1].Term != MaxHistory {
		t.Errorf("%v, %d terms", err, len(again.Terms))
	}
}

func TestGarbageIsNotAHistory(t *testing.T) {
	var h History
	for i := range MaxHistory {
		h.add(past(int64(i + 1)))
	}
	whole := EncodeHistory(&h)
	flipped := slices.Clone(whole)
	flipped[len(flipped)/2] ^= 0xff
	for name, data := range map[string][]byte{
		"nothing": {}, "text": []byte("hello"), "a list": []byte("[]"), "no version": []byte(`{"terms":[]}`), "wrong type": []byte(`{"v":1,"terms":7}`),
		"only the magic": {0x1f, 0x8b}, "half a header": whole[:7], "truncated": whole[:len(whole)/2], "without its end": whole[:len(whole)-1],
		"damaged": flipped, "packed garbage": packed(t, []byte("hello")), "packed nothing": packed(t),
	} {
		if _, err := DecodeHistory(historyPath, data); err == nil || !strings.Contains(err.Error(), "znode "+historyPath) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
