package cluster

import "fmt"

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
