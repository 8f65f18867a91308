package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"zkelectd/internal/cluster"
)

var (
	commandText = regexp.MustCompile(`'(zkelectd [^']*)'`)
	// verb is a verb of a format, which stands for a name or a number, as an action does in a template; placeholder is a word that
	// nobody can type as it is.
	verb        = regexp.MustCompile(`%(\[\d\])?[sdqv]`)
	action      = regexp.MustCompile(`{{[^}]*}}`)
	placeholder = regexp.MustCompile(`\b[A-Z]{2,}\b|…|\.\.\.`)
)

// texts calls f for each text in the sources of the program, with the parts of a sum put together. completed is set for a command that
// cluster.InGroup completes.
func texts(t *testing.T, f func(at token.Position, text string, completed bool)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		completed := make(map[ast.Node]bool)
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && completes(call.Fun) > 0 {
				if text, ok := constant(call.Args[0]); ok {
					completed[call.Args[0]] = true
					if values := len(call.Args) - completes(call.Fun); values != strings.Count(text, "%s") {
						t.Errorf("%s: %s gets %d values", files.Position(n.Pos()), text, values)
					}
					f(files.Position(n.Pos()), text, true)
				}
			}
			return true
		})
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := constant(n)
			if ok && !completed[n] {
				f(files.Position(n.Pos()), text, false)
			}
			return !ok
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// completes returns how many arguments a function that completes a command has before the values, 0 for another function: the command and, unless
// it is a method, the group.
func completes(f ast.Expr) int {
	if name, ok := f.(*ast.SelectorExpr); ok {
		return map[string]int{"InGroup": 2, "inGroup": 1}[name.Sel.Name]
	}
	return 0
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

// typedCommands calls f for each command in quotes, in the texts of the program and of the alerts.
func typedCommands(t *testing.T, f func(at, command string)) {
	t.Helper()
	find := func(at, text string) {
		for _, m := range commandText.FindAllStringSubmatch(strings.Join(strings.Fields(text), " "), -1) {
			f(at, m[1])
		}
	}
	texts(t, func(at token.Position, text string, _ bool) { find(at.String(), text) })
	find("alerts.yml", action.ReplaceAllString(read("../../deploy/prometheus/alerts.yml"), "%s"))
}

// A reader types each 'zkelectd …' in a message or a help text as it is: it must be a complete command.
func TestCommandsCanBeTyped(t *testing.T) {
	t.Parallel()
	found := 0
	typedCommands(t, func(at, command string) {
		found++
		line := verb.ReplaceAllString(command, "1")
		if placeholder.MatchString(line) {
			t.Errorf("%s: %q cannot be typed as it is", at, command)
		} else if err := typed(line); err != nil {
			t.Errorf("%s: %q: %v", at, command, err)
		}
	})
	if found < 40 {
		t.Errorf("only %d commands were found", found)
	}
}

// leaves calls f for each command that a person uses, apart from those that only have subcommands.
func leaves(cmd *cobra.Command, f func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" && !sub.IsAdditionalHelpTopicCommand() {
			leaves(sub, f)
		}
	}
	if cmd.Runnable() {
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

// parsed returns what the program understands if a line is typed as it is.
func parsed(t *testing.T, line string) *cobra.Command {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	if err != nil || len(file.Stmts) != 1 {
		t.Fatalf("%s: %v", line, err)
	}
	call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok {
		t.Fatalf("%s is not one command", line)
	}
	words, err := expand.Fields(nil, call.Args...)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	cmd, rest, err := root().Find(words[1:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return cmd
}

// A command acts on the group, and on the node, that it is about, whatever their names are; so nothing but cluster.InGroup puts names in.
func TestCommandsActOnWhatTheyName(t *testing.T) {
	t.Parallel()
	found, named := 0, 0
	texts(t, func(at token.Position, text string, completed bool) {
		if !completed {
			for _, m := range commandText.FindAllString(text, -1) {
				if strings.Contains(m, " -g ") || slices.ContainsFunc(verb.FindAllString(m, -1), func(v string) bool { return !strings.HasSuffix(v, "d") }) {
					t.Errorf("%s: %s has a name that is not quoted: use cluster.InGroup", at, m)
				}
			}
			return
		}
		if !commandText.MatchString(text) {
			t.Errorf("%s: %q is not a command", at, text)
			return
		}
		found++
		const group = "it's; $(group)"
		cmd, _, err := root().Find(strings.Fields(strings.Trim(text, "'"))[1:])
		if err != nil {
			t.Errorf("%s: %v", at, err)
			return
		}
		var args []any
		words := strings.Fields(strings.Trim(text, "'"))
		for i, w := range words {
			if w != "%s" {
				continue
			}
			value := "-no \"de\" *"
			option := strings.TrimLeft(words[i-1], "-")
			f := cmd.Flags().Lookup(option)
			if f == nil && len(option) == 1 {
				f = cmd.Flags().ShorthandLookup(option)
			}
			if f != nil && f.Value.Type() == "int" {
				value = "7"
			}
			args = append(args, value)
		}
		cmd = parsed(t, strings.TrimSuffix(strings.TrimPrefix(cluster.InGroup(text, group, args...), "'"), "'"))
		var seen []string
		cmd.Flags().Visit(func(f *pflag.Flag) { seen = append(seen, f.Value.String()) })
		for _, value := range append(args, group) {
			named++
			if !slices.Contains(append(seen, cmd.Flags().Args()...), value.(string)) {
				t.Errorf("%s: %s does not name %q, but %q and %q", at, text, value, seen, cmd.Flags().Args())
			}
		}
		if f := cmd.Flags().Lookup("group"); f == nil || f.Value.String() != group {
			t.Errorf("%s: %s acts on another group", at, text)
		}
	})
	if found < 30 || named < 35 {
		t.Errorf("only %d commands with %d names were found", found, named)
	}
}
