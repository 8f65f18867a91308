package cluster

import (
	"regexp"
	"strings"
)

// typedAsItIs matches the names of groups and slots that no shell splits, expands or unquotes.
var typedAsItIs = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

// InGroup completes a hint, a command in quotes such as 'zkelectd resume', with the group, which has to be named where there are several.
// An empty one is not known, and leaves the hint as it is; so does one that would have to be quoted in a
// shell, as the last part of a root may.
func InGroup(hint, group string) string {
	if !typedAsItIs.MatchString(group) {
		return hint
	}
	return strings.TrimSuffix(hint, "'") + " -g " + group + "'"
}

// GroupOf returns the name of the group of a slot, such as ingest/3, or of a group: what concerns all slots is said of the group.
func GroupOf(name string) string {
	group, _, _ := strings.Cut(name, "/")
	return group
}
