package cluster

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRecordsKeepUnknownFields(t *testing.T) {
	const path = "/cluster/leader"
	var f Fence
	in := `{"v":1,"term":7,"node":"n1","state":"READY","lease_wait":"2s","kill":"1s","revoke_timeout":"5s","color":"red","deep":{"x":[1]}}`
	if err := Decode(path, []byte(in), &f); err != nil {
		t.Fatal(err)
	}
	if f.Term != 7 || f.State != FenceReady || time.Duration(f.LeaseWait) != 2*time.Second {
		t.Errorf("decoded %+v", f)
	}
	f.Term = 8
	out := string(Encode(&f))
	for _, want := range []string{`"color":"red"`, `"deep":{"x":[1]}`, `"term":8`, `"v":1`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s lacks %s", out, want)
		}
	}
}

// encoding/json ignores case, so a kept key that differs only in case could override a known one.
func TestKeptFieldsNeverOverrideWrittenOnes(t *testing.T) {
	for _, in := range []string{`{"v":1,"state":"HELD","ſtate":"READY"}`, `{"v":1,"STATE":"READY"}`, `{"v":1,"\u017ftate":"READY"}`} {
		s := ReadStored[Fence]("/c/leader", []byte(in), Stat{}, true)
		if s.Err != nil {
			t.Fatal(s.Err)
		}
		s.Record.State = FenceReleased
		if again := ReadStored[Fence]("/c/leader", Encode(&s.Record), Stat{}, true); again.Record.State != FenceReleased {
			t.Errorf("%s: RELEASED was written, and %s is read", in, again.Record.State)
		}
	}
}

// A record that no longer fits into a znode when it is rewritten could never be replaced, so it is rejected.
func TestARecordFitsIntoItsZnodeWhenRewritten(t *testing.T) {
	for name, c := range map[string]struct {
		data    string
		refused bool
	}{
		"angles":     {`{"v":1,"junk":"` + strings.Repeat("<", 400<<10) + `"}`, false},
		"exclusions": {`{"v":1,"exclusions":[{}` + strings.Repeat(",{}", 150_000) + `]}`, true},
		"verdicts":   {`{"v":1,"ranking":[{}` + strings.Repeat(",{}", 12_000) + `]}`, true},
		"not UTF-8":  {`{"v":1,"reason":"` + strings.Repeat("\xff", 400<<10) + `"}`, true},
	} {
		s := ReadStored[Elected]("/c/leader/elected", []byte(c.data), Stat{}, true)
		if (s.Err != nil) != c.refused || (c.refused && !strings.Contains(s.Err.Error(), "znode /c/leader/elected")) {
			t.Errorf("%s: %v", name, s.Err)
		}
		if n := len(Encode(&s.Record)); n > MaxRecord {
			t.Errorf("%s: %d bytes become %d", name, len(c.data), n)
		}
	}
}

func TestUnreadableRecordsNameTheZnode(t *testing.T) {
	for name, data := range map[string]string{
		"empty": "", "garbage": "\x00\xff", "list": "[]", "no version": `{"term":1}`, "text version": `{"v":"1"}`,
		"newer": `{"v":3,"term":1}`, "wrong type": `{"v":1,"term":"x"}`, "bad duration": `{"v":1,"kill":"1 parsec"}`,
		"negative duration": `{"v":1,"kill":"-1s"}`, "the last term": `{"v":1,"term":9223372036854775807}`, "negative term": `{"v":1,"term":-1}`, "term 2^53": `{"v":1,"term":9007199254740992}`,
		"a wait that overflows": `{"v":1,"lease_wait":"2562047h47m16.8s"}`, "a wait of a day": `{"v":1,"lease_wait":"24h"}`,
		"a remaining wait of a day": `{"v":1,"owed":"24h"}`, "a kill of a day": `{"v":1,"kill":"24h"}`, "a revoke timeout of a day": `{"v":1,"revoke_timeout":"24h"}`,
	} {
		s := ReadStored[Fence]("/cluster/leader", []byte(data), Stat{}, true)
		if s.Err == nil || s.Readable() || !strings.Contains(s.Err.Error(), "/cluster/leader") {
			t.Errorf("%s: %+v", name, s.Err)
		}
		if s.Record.Term != 0 {
			t.Errorf("%s: the record was half decoded: %+v", name, s.Record)
		}
	}
	if s := ReadFence("/cluster/leader", nil, Stat{ChildVersion: 5}, true); !s.Exists || s.Readable() || s.Stat.ChildVersion != 5 || !errors.Is(s.Err, ErrNeverWritten) {
		t.Errorf("the fence that was never written: %+v", s)
	}
	if s := ReadFence("/cluster/leader", nil, Stat{}, false); s.Exists || s.Err != nil {
		t.Errorf("the leader that was deleted: %+v", s)
	}
	if s := ReadFence("/cluster/leader", nil, Stat{Version: 3}, true); !s.Exists || s.Err == nil || errors.Is(s.Err, ErrNeverWritten) || s.Stat.Version != 3 {
		t.Errorf("the fence that was emptied: %+v", s)
	}
}

// A missing cause would not be counted from the start, so the metrics would not show its first occurrence.
func TestCausesAreComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "record.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []Cause
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Cause" {
				text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, Cause(text))
			}
		}
		return true
	})
	if !slices.Equal(all, Causes) || len(all) < 13 {
		t.Errorf("declared are %q, listed %q", all, Causes)
	}
}

// Unknown field names are kept, however short.
func TestOddFieldNamesAreKept(t *testing.T) {
	var f Fence
	if err := Decode("/c/leader", []byte(`{"v":1,"":5,"-":6}`), &f); err != nil {
		t.Fatal(err)
	}
	if out := string(Encode(&f)); !strings.Contains(out, `"":5`) || !strings.Contains(out, `"-":6`) {
		t.Errorf("%s", out)
	}
	var plain Fence
	if err := Decode("/c/leader", []byte(`{"v":1}`), &plain); err != nil || plain.Unknown != nil {
		t.Errorf("%v, %v", plain.Unknown, err)
	}
}

// A record may have at most 512000 bytes, as read and as rewritten.
func TestTheLongestRecord(t *testing.T) {
	const most = 512_000
	sized := func(n int, filler string) []byte {
		head := `{"v":1,"term":0,"node":"","site":"","incarnation":"","state":"","time":"0001-01-01T00:00:00Z","api":"`
		return []byte(head + strings.Repeat(filler, n-len(head)-2) + `"}`)
	}
	if s := ReadStored[Current]("/c", sized(most, "x"), Stat{}, true); s.Err != nil || len(Encode(&s.Record)) != most {
		t.Errorf("%v, %d bytes when written", s.Err, len(Encode(&s.Record)))
	}
	if s := ReadStored[Current]("/c", sized(most+1, "x"), Stat{}, true); s.Err == nil || !strings.Contains(s.Err.Error(), "has 512001 bytes, more than a zkelectd record may have (512000)") {
		t.Error(s.Err)
	}
}

func TestDurationsAreText(t *testing.T) {
	var d Duration
	if err := d.UnmarshalText([]byte("-1s")); err == nil || err.Error() != "negative duration" {
		t.Error(err)
	}
	if err := d.UnmarshalText([]byte("x")); err == nil || strings.Contains(err.Error(), "negative") {
		t.Error(err)
	}
	if err := d.UnmarshalText([]byte("0s")); err != nil || d.String() != "0s" {
		t.Error(err, d)
	}
	if d = Duration(2700 * time.Millisecond); d.String() != "2.7s" {
		t.Error(d)
	}
}
