package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// Every command in the documentation must exist: as a command of this program with these flags and arguments, or as a target
// of the Makefile. So must the files of the repository and the sections that it names.
func TestDocumentedCommandsExist(t *testing.T) {
	t.Parallel()
	d := newDocuments(t)
	for _, file := range d.files {
		for _, c := range commandsIn(d.text[file]) {
			for _, fault := range d.check(c) {
				t.Errorf("%s:%s", file, fault)
			}
		}
		for _, fault := range d.links(file) {
			t.Errorf("%s:%s", file, fault)
		}
	}
}

// The checks find errors.
func TestDocumentedCommandsThatDoNotExist(t *testing.T) {
	t.Parallel()
	d := newDocuments(t)
	for text, want := range map[string]string{
		"```sh\nzkelectd statsu\n```":                                      `2: zkelectd statsu: unknown command "statsu" for "zkelectd"`,
		"```sh\n\nzkelectd move --too n1\n```":                             "3: zkelectd move --too n1: unknown flag: --too",
		"```sh\nzkelectd pause --for soon\n```":                            `2: zkelectd pause --for soon: invalid argument "soon"`,
		"```\n$ zkelectd clear-strike n1 \\\n    --all\nit says\n$ x\n```": `2: zkelectd clear-strike n1 --all: unknown command "clear-strike"`,
		"say `zkelectd clear-strike NODE`":                                 `unknown command "clear-strike"`,
		"```sh\nmake test FOR=1s BENCH_ARGS=x && make nothing\n```":        "the Makefile has no nothing",
		"```sh\necho (\n```":                                               "2: no shell takes this",
		"```sh\ncat configs/missing.yaml\n```":                             "there is no configs/missing.yaml",
	} {
		var got []string
		for _, c := range commandsIn(text) {
			got = append(got, d.check(c)...)
		}
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"see [a](missing.md)":           "1: there is no docs/missing.md",
		"\nsee [a](safety.md#nowhere)":  "2: docs/safety.md has no section nowhere",
		"see [a](../cmd/zkelectd#here)": "1: cmd/zkelectd has no section here",
	} {
		d.text["docs/test.md"] = text
		if got := d.links("docs/test.md"); !slices.Equal(got, []string{want}) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	d.text["docs/test.md"] = "## Here, `there` and_there!\n[a](#here-there-and_there) [b](http://127.0.0.1/#x) [c](../README.md) [d](safety.md#the-promise)"
	if got := d.links("docs/test.md"); len(got) != 0 {
		t.Errorf("links: got %q", got)
	}
}

// snippet is a piece of shell in a document, with its line.
type snippet struct {
	line   int
	script string
	inline bool // in a sentence: it need not be a command
}

var inlineCode = regexp.MustCompile("`([^`\n]+)`")

// commandsIn returns the sh blocks, the lines after "$ " in other blocks, and the code in sentences.
func commandsIn(text string) []snippet {
	var all []snippet
	fence, block, start := "", "", 0
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(trimmed, "```"):
			fence, block, start = trimmed, "", i+2
		case fence == "":
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				all = append(all, snippet{i + 1, m[1], true})
			}
		case trimmed == "```":
			if fence == "```sh" {
				all = append(all, snippet{start, block, false})
			}
			fence = ""
		case fence == "```sh":
			block += line + "\n"
		case strings.HasPrefix(trimmed, "$ "):
			at, script := i+1, trimmed[2:]
			for strings.HasSuffix(script, "\\") && i+1 < len(lines) {
				i++
				script += "\n" + lines[i]
			}
			all = append(all, snippet{at, script, false})
		}
	}
	return all
}

// documents are the documents to check, and what they refer to.
type documents struct {
	root    string
	files   []string
	text    map[string]string
	targets []string
}

func newDocuments(t *testing.T) documents {
	t.Helper()
	d := documents{root: "../..", text: make(map[string]string)}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/recipes/*.md"} {
		found, err := filepath.Glob(filepath.Join(d.root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range found {
			name, err := filepath.Rel(d.root, path)
			if err != nil {
				t.Fatal(err)
			}
			d.files = append(d.files, name)
			d.text[name] = read(path)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(read(filepath.Join(d.root, "Makefile")), -1) {
		d.targets = append(d.targets, m[1])
	}
	return d
}

func (d documents) exists(path string) bool {
	_, err := os.Stat(filepath.Join(d.root, path))
	return err == nil
}

// ours matches paths in the repository.
var ours = regexp.MustCompile(`^(bench|cmd|configs|deploy|docs|internal|scripts)/[\w@./-]+$`)

// check returns the errors in a piece of shell, with their lines.
func (d documents) check(s snippet) []string {
	if s.inline && !ours.MatchString(s.script) && !regexp.MustCompile(`^(zkelectd|make) [a-z]`).MatchString(s.script) {
		return nil
	}
	file, err := syntax.NewParser().Parse(strings.NewReader(s.script), "")
	if err != nil {
		if s.inline {
			return nil // zkelectd run … | …
		}
		return []string{fmt.Sprintf("%d: no shell takes this: %v", s.line, err)}
	}
	var faults []string
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, w := range call.Args {
			words = append(words, unquoted(w))
		}
		if fault := d.command(words, s.inline); fault != "" {
			faults = append(faults, fmt.Sprintf("%d: %s", s.line+int(call.Pos().Line())-1, fault))
		}
		return true
	})
	return faults
}

// unquoted returns a word without its quotes; expansions become X.
func unquoted(w *syntax.Word) string {
	var b strings.Builder
	var add func(parts []syntax.WordPart)
	add = func(parts []syntax.WordPart) {
		for _, p := range parts {
			switch p := p.(type) {
			case *syntax.Lit:
				b.WriteString(p.Value)
			case *syntax.SglQuoted:
				b.WriteString(p.Value)
			case *syntax.DblQuoted:
				add(p.Parts)
			default:
				b.WriteString("X")
			}
		}
	}
	add(w.Parts)
	return b.String()
}

// command returns what is wrong with a command, "" for nothing. A sentence may name only its beginning.
func (d documents) command(words []string, beginning bool) string {
	for len(words) > 0 && slices.Contains([]string{"sudo", "exec", "time"}, words[0]) {
		words = words[1:]
	}
	if len(words) == 0 {
		return ""
	}
	switch words[0] {
	case "zkelectd", "bin/zkelectd", "/usr/bin/zkelectd":
		if err := parses(words[1:], beginning); err != nil {
			return fmt.Sprintf("zkelectd %s: %v", strings.Join(words[1:], " "), err)
		}
	case "make":
		for _, target := range words[1:] {
			if !strings.Contains(target, "=") && !slices.Contains(d.targets, target) {
				return "the Makefile has no " + target
			}
		}
	}
	for _, w := range words {
		if ours.MatchString(w) && !d.exists(w) {
			return "there is no " + w
		}
	}
	return ""
}

// parses parses a command line as the program does.
func parses(args []string, beginning bool) error {
	cmd, rest, err := root().Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	for i := range rest {
		if rest[i] == "N" { // stands for a number
			rest[i] = "1"
		}
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if help, err := cmd.Flags().GetBool("help"); err == nil && help {
		return nil
	}
	if beginning && cmd.Flags().NArg() == 0 {
		return nil
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	return errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups())
}

var hyperlink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// links returns the broken links of a document.
func (d documents) links(file string) []string {
	var faults []string
	for i, line := range strings.Split(d.text[file], "\n") {
		for _, m := range hyperlink.FindAllStringSubmatch(line, -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			switch {
			case path != "" && !d.exists(target):
				faults = append(faults, fmt.Sprintf("%d: there is no %s", i+1, target))
			case anchor != "" && !slices.Contains(sections(d.text[target]), anchor):
				faults = append(faults, fmt.Sprintf("%d: %s has no section %s", i+1, target, anchor))
			}
		}
	}
	return faults
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// sections returns the anchors of the headings of a page.
func sections(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}
