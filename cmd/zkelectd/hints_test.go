package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/syntax"

	"zkelectd/internal/cluster"
)

var (
	hint = regexp.MustCompile(`'(zkelectd [^']*)'`)
	// verb is a verb of a format, which stands for a name or a number, as an action does in a template; placeholder is a word that
	// nobody can type as it is.
	verb        = regexp.MustCompile(`%(\[\d\])?[sdqv]`)
	action      = regexp.MustCompile(`{{[^}]*}}`)
	placeholder = regexp.MustCompile(`\b[A-Z]{2,}\b|…|\.\.\.`)
)

// texts calls f for each text in the sources of the program, with the parts of a sum put together.
func texts(t *testing.T, f func(at token.Position, text string)) {
	t.Helper()
	for _, dir := range []string{".", "../../internal"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				text, ok := constant(n)
				if ok {
					f(files.Position(n.Pos()), text)
				}
				return !ok
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// constant returns the text of a string literal or of a sum; what is not constant in it stands for a word.
func constant(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		return text, err == nil && n.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := constant(n.X)
		right, isRight := constant(n.Y)
		if n.Op != token.ADD || !isLeft && !isRight {
			return "", false
		}
		if !isLeft {
			left = "%s"
		}
		if !isRight {
			right = "%s"
		}
		return left + right, true
	}
	return "", false
}

// typed returns the error of a command line if it is typed as it is.
func typed(line string) error {
	file, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	if err != nil {
		return err
	}
	var words []string
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok {
			for _, w := range call.Args {
				words = append(words, unquoted(w))
			}
		}
		return true
	})
	return parses(words[1:], false)
}

// hints calls f for each command in quotes, in the texts of the program and of the alerts.
func hints(t *testing.T, f func(at, command string)) {
	t.Helper()
	find := func(at, text string) {
		for _, m := range hint.FindAllStringSubmatch(strings.Join(strings.Fields(text), " "), -1) {
			f(at, m[1])
		}
	}
	texts(t, func(at token.Position, text string) { find(at.String(), text) })
	find("alerts.yml", action.ReplaceAllString(read("../../deploy/prometheus/alerts.yml"), "%s"))
}

// A reader types each 'zkelectd …' in a message or a help text as it is: it must be a complete command.
func TestHintsCanBeTyped(t *testing.T) {
	t.Parallel()
	found := 0
	hints(t, func(at, command string) {
		found++
		line := verb.ReplaceAllString(command, "1")
		if placeholder.MatchString(line) {
			t.Errorf("%s: %q cannot be typed as it is", at, command)
		} else if err := typed(line); err != nil {
			t.Errorf("%s: %q: %v", at, command, err)
		}
	})
	if found < 40 {
		t.Errorf("only %d hints were found", found)
	}
}

// leaves calls f for each command without subcommands that a person uses.
func leaves(cmd *cobra.Command, f func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			leaves(sub, f)
		}
	}
	if !cmd.HasSubCommands() {
		f(cmd)
	}
}

// The help of each command has at least two examples, each of which can be typed.
func TestExamplesCanBeTyped(t *testing.T) {
	t.Parallel()
	leaves(root(), func(cmd *cobra.Command) {
		lines := strings.Split(cmd.Example, "\n")
		takesNothing := cmd.Flags().NFlag() == 0 && !cmd.HasLocalFlags()
		if cmd.Example == "" || len(lines) < 2 && !takesNothing {
			t.Errorf("%s has fewer than two examples", cmd.CommandPath())
		}
		for _, line := range lines {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, cmd.CommandPath()+" ") && line != cmd.CommandPath() {
				t.Errorf("%s: %q is an example of something else", cmd.CommandPath(), line)
			} else if err := typed(line); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
		}
	})
}

// A hint about one of several groups can be typed, too.
func TestHintsInAGroupCanBeTyped(t *testing.T) {
	t.Parallel()
	found := 0
	hints(t, func(at, command string) {
		line := verb.ReplaceAllString(command, "1")
		cmd, _, err := root().Find(strings.Fields(line)[1:])
		if err != nil || cmd.Flags().Lookup("group") == nil && cmd.InheritedFlags().Lookup("group") == nil || strings.Contains(line, " -g ") || strings.Contains(line, "--help") {
			return
		}
		found++
		if err := typed(strings.Trim(cluster.InGroup("'"+line+"'", "ingest/3"), "'")); err != nil {
			t.Errorf("%s: %q: %v", at, line, err)
		}
	})
	if found < 20 {
		t.Errorf("only %d hints were found", found)
	}
}
