package cluster

import (
	"fmt"
	"path"
	"strings"
	"unicode"
)

// InGroup completes a command in quotes, such as 'zkelectd forget %s', so that it works when it is typed. It replaces
// each %s by the next argument, and adds -g with the name of the group or slot. That is the name in the configuration:
// the root of a group may end in another one. If group is empty, its name is not known, and the command has no -g.
// InGroup adds no options for the connection. The command of a job, after --, stays at the end.
func InGroup(command, group string, args ...any) string {
	var words, dashed []string
	command, job, hasJob := strings.Cut(strings.Trim(command, "'"), " -- ")
	for _, w := range strings.Fields(command) {
		if w == "%s" {
			text := fmt.Sprint(args[0])
			w, args = ShellWord(text), args[1:]
			if strings.HasPrefix(text, "-") && !strings.HasPrefix(words[len(words)-1], "-") {
				dashed = append(dashed, w) // an argument that would be taken for an option
				continue
			}
		}
		words = append(words, w)
	}
	if group != "" {
		words = append(words, "-g", ShellWord(group))
	}
	if dashed != nil {
		words = append(append(words, "--"), dashed...)
	}
	if hasJob {
		words = append(words, "--", job)
	}
	return "'" + strings.Join(words, " ") + "'"
}

// ShellWord returns text as a reader types it in a POSIX shell: as it is, if no shell splits, expands or unquotes it.
func ShellWord(text string) string {
	if text == "" {
		return "''"
	}
	var b strings.Builder
	if strings.ContainsFunc(text, unicode.IsControl) {
		// a shell drops a newline after a backslash; only damaged records contain one
		b.WriteString("$'")
		for _, c := range []byte(text) {
			if c >= ' ' && c != '\'' && c != '\\' && c < unicode.MaxASCII {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		}
		return b.String() + "'"
	}
	for _, r := range text {
		if r < unicode.MaxASCII && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_./:@%+,-", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// NameOf returns the name of the only group of a host, or of a root: only groups below a root have names of their own.
func NameOf(root string) string { return path.Base(root) }

// SlotName returns the name of a slot, such as ingest/3, in a group with that name; of the group itself if there is no
// slot.
func SlotName(group, slot string) string {
	if group == "" || slot == "" {
		return group
	}
	return group + "/" + slot
}

// GroupOf returns the name of the group of a slot, such as ingest/3, or of a group: what concerns all slots is said of
// the group.
func GroupOf(name string) string {
	group, _, _ := strings.Cut(name, "/")
	return group
}
