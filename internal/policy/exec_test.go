package policy

import (
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
)

func TestQuestionJSON(t *testing.T) {
	old, lost := member("a", "dc9", 1, 0), member("z", "dc9", 1, 9)
	old.Name, old.Superseded = "a-0", true
	lost.Node.Exists = false
	in := Input{
		Members:       []cluster.Member{old, member("b", "dc2", 5, 2, score(2.5), label("rack", "r1")), member("a", "dc1", 1, 3, latency(0.5)), lost},
		Incumbent:     "b",
		Circumstances: cluster.Circumstances{Cause: cluster.CauseFailure, Node: "x", Site: "dc3", Failed: []string{"dc3"}},
	}
	want := `{"v":1,"cause":"failure","previous":{"node":"x","site":"dc3"},"failed_sites":["dc3"],"members":[` +
		`{"id":"a","site":"dc1","priority":1,"labels":{},"incumbent":false,"latency_ms":0.5},` +
		`{"id":"b","site":"dc2","priority":5,"labels":{"rack":"r1"},"incumbent":true,"score":2.5}]}` + "\n"
	if got := string(QuestionJSON(in)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	slices.Reverse(in.Members)
	if got := string(QuestionJSON(in)); got != want {
		t.Errorf("with the members in another order: %s", got)
	}
	if got, want := string(QuestionJSON(Input{})), `{"v":1,"cause":"","previous":{},"failed_sites":[],"members":[]}`+"\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestParseAnswer(t *testing.T) {
	in := Input{Members: []cluster.Member{member("a", "dc1", 1, 1), member("b", "dc1", 1, 2)}}
	for text, c := range map[string]struct {
		order []string
		err   string
	}{
		`["b", "a"]`:       {[]string{"b", "a"}, ""},
		" [\"b\"]\n\n":     {[]string{"b"}, ""},
		`[]`:               {[]string{}, ""},
		``:                 {nil, "not a JSON list"},
		`null`:             {nil, "not a JSON list"},
		`{"order": ["a"]}`: {nil, "not a JSON list"},
		`["a", 7]`:         {nil, "not a JSON list"},
		`["a"] ["b"]`:      {nil, "more than one"},
		`["a", "x"]`:       {nil, `names "x", which is not a member`},
		`["a", "b", "a"]`:  {nil, `names "a" twice`},
	} {
		got := ParseAnswer([]byte(text), in)
		if !slices.Equal(got.Ranking, c.order) || (got.Err == "") != (c.err == "") || !strings.Contains(got.Err, c.err) {
			t.Errorf("%q: %+v, want %+v", text, got, c)
		}
	}
}
