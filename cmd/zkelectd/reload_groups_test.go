package main

import (
	"errors"
	"strings"
	"testing"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
)

func TestDescribeReload(t *testing.T) {
	t.Parallel()
	answer := func(name, refused, reloaded string) reloadAnswer {
		return reloadAnswer{name: name, node: cluster.Node{Refused: refused, Reloaded: reloaded}}
	}
	same, changed := answer("a", "", unchanged), answer("b", "", "applied: node.priority")
	for name, c := range map[string]struct {
		answers    []reloadAnswer
		files      error
		text, want string
	}{
		"nothing":          {[]reloadAnswer{same}, nil, "", ""},
		"a change":         {[]reloadAnswer{same, changed}, nil, "b: applied: node.priority\n", ""},
		"a removal":        {[]reloadAnswer{same, {name: "b", left: true}}, nil, "b: left\n", ""},
		"one refused":      {[]reloadAnswer{answer("a", "a.yaml: x", ""), changed}, errors.New("a.yaml: x"), "b: applied: node.priority\n", "these groups stay as they are:\na.yaml: x"},
		"a new one":        {[]reloadAnswer{same}, errors.New("a.yaml: x\nnew.yaml: y"), "", "these groups stay as they are:\na.yaml: x\nnew.yaml: y"},
		"all refused":      {[]reloadAnswer{answer("a", "gone", ""), answer("b", "gone", "")}, nil, "", "reload refused, the running configuration stays in force:\ngone"},
		"the only refused": {[]reloadAnswer{answer("a", "gone", "")}, errors.New("gone"), "", "reload refused, the running configuration stays in force:\ngone"},
	} {
		text, err := describeReload(c.answers, c.files)
		if text != c.text || (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func TestReloadFlagsForOneAndManyGroups(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r    reloading
		h    config.Host
		want string
	}{
		{reloading{force: true}, config.Host{}, ""},
		{reloading{allowRemovals: true}, config.Host{Dir: "/d"}, ""},
		{reloading{allowRemovals: true}, config.Host{}, "--allow-removals has no effect without groups_dir"},
		{reloading{force: true}, config.Host{Dir: "/d"}, "--force is for a daemon with one group"},
	} {
		if err := c.r.checkFlags(c.h); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
}
