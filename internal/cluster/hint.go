package cluster

import "strings"

// InGroup completes a hint, a command in quotes such as 'zkelectd resume', with the group, which has to be named where there are several;
// an empty one is not known, and leaves the hint as it is.
func InGroup(hint, group string) string {
	if group == "" {
		return hint
	}
	return strings.TrimSuffix(hint, "'") + " -g " + group + "'"
}

// GroupOf returns the name of the group of a slot, such as ingest/3, or of a group: what concerns all slots is said of the group.
func GroupOf(name string) string {
	group, _, _ := strings.Cut(name, "/")
	return group
}
