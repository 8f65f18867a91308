package cluster

import (
	"fmt"
	"slices"
	"testing"
)

// Brief describes each of the operations. A run of writes of one znode is a single one: "set /c/leader@4..7".
func Brief(ops []Op, describe func(Op) string) (all []string) {
	for i := 0; i < len(ops); i++ {
		first := ops[i]
		text := describe(first)
		for i+1 < len(ops) && follows(ops[i], ops[i+1]) {
			i++
		}
		if last := ops[i]; last.Version != first.Version {
			text += fmt.Sprintf("..%d", last.Version)
		}
		all = append(all, text)
	}
	return all
}

// follows reports whether an operation writes the znode again that the one before it has written.
func follows(before, op Op) bool {
	return before.Kind == OpSet && op.Kind == OpSet && op.Path == before.Path && op.Version == before.Version+1
}

// plain describes an operation.
func plain(op Op) string { return fmt.Sprintf("%s %s@%d", op.Kind, op.Path, op.Version) }

func TestBrief(t *testing.T) {
	set := func(path string, version int32) Op { return Op{Kind: OpSet, Path: path, Version: version} }
	check := Op{Kind: OpCheck, Path: "/a", Version: 6}
	got := Brief([]Op{set("/a", 4), set("/a", 5), check, set("/a", 6), set("/b", 7), set("/b", 8), set("/b", 9), set("/b", 9)}, plain)
	if want := []string{"set /a@4..5", "check /a@6", "set /a@6", "set /b@7..9", "set /b@9"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
