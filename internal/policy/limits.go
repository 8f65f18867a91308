package policy

import (
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"zkelectd/internal/sys/suggest"
)

// The limits of an expression. It is read from a znode, and the elector evaluates it for every member in its event
// loop.
const (
	// maxText is its length in bytes, maxNodes the number of its operators and operands, maxLoops how deep loops nest.
	maxText  = 4096
	maxNodes = 500
	maxLoops = 2
	// maxRange is the number of values of a range a..b.
	maxRange = 100
	// maxPattern is the size of a compiled regular expression, in instructions.
	maxPattern = 2000
	// maxIterations is the number of loop iterations while all members are ranked; each evaluation has an equal share.
	// maxMemory is the number of list items that one evaluation may create.
	maxIterations = 1_000_000
	maxMemory     = 100_000
	// maxInput is how many bytes of a text published by a member an expression sees.
	maxInput = 1024
)

// functions are the builtins that expressions may use: those that depend only on their arguments, not on the time or
// the order of a map, and whose result is not larger than their arguments.
var functions = []string{
	"all", "none", "any", "one", "filter", "map", "find", "findIndex", "findLast", "findLastIndex", "count",
	"sum", "sortBy",
	"len", "abs", "ceil", "floor", "round", "int", "float", "min", "max", "mean", "median",
	"trim", "trimPrefix", "trimSuffix", "upper", "lower", "split", "indexOf", "lastIndexOf", "hasPrefix", "hasSuffix",
	"first", "last", "get", "take", "reverse", "sort",
}

// iterateName is the function that a loop calls at each iteration.
const iterateName = "__iterate"

// languageOptions returns the compiler options that restrict expressions to what is supported.
func languageOptions() []expr.Option {
	options := []expr.Option{expr.DisableAllBuiltins(), expr.MaxNodes(maxNodes)}
	for _, name := range functions {
		options = append(options, expr.EnableBuiltin(name))
	}
	return options
}

// limitError is the error for an expression that could cost too much, or uses what is not supported.
type limitError struct{ reason string }

func (e limitError) Error() string { return e.reason }

// limits checks a parsed expression against the limits, and makes its loops count their iterations.
type limits struct {
	err   error            // the first violation
	loops map[ast.Node]int // for each loop, how deep the loops nest at it and below it
}

func (l *limits) refuse(format string, args ...any) {
	if l.err == nil {
		l.err = limitError{fmt.Sprintf(format, args...)}
	}
}

// Visit is called for the children of a node before the node itself.
func (l *limits) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.VariableDeclaratorNode:
		// Its value could be combined with itself again and again.
		l.refuse("let is not supported in policies")
	case *ast.IdentifierNode:
		if n.Value == iterateName {
			l.refuse("unknown name %s", iterateName)
		}
	case *ast.BinaryNode:
		l.operator(n)
	case *ast.PredicateNode:
		iterate := &ast.CallNode{Callee: &ast.IdentifierNode{Value: iterateName}}
		n.Node = &ast.SequenceNode{Nodes: []ast.Node{iterate, n.Node}}
	case *ast.BuiltinNode:
		if !slices.Contains(functions, n.Name) { // some loops cannot be disabled in the language
			l.refuse("unknown name %s", n.Name)
		}
		l.loop(node, n)
	}
}

func (l *limits) operator(n *ast.BinaryNode) {
	switch n.Operator {
	case "..":
		from, okFrom := integerLiteral(n.Left)
		to, okTo := integerLiteral(n.Right)
		if !okFrom || !okTo || to-from >= maxRange {
			l.refuse("a range must be written with literal numbers, and have at most %d values", maxRange)
		}
	case "+":
		if !number(n.Left) || !number(n.Right) {
			l.refuse("+ is for numbers: policies do not concatenate strings")
		}
	case "==", "!=":
		if !scalar(n.Left) && !scalar(n.Right) {
			l.refuse("%s is for numbers and strings: lists and members cannot be compared", n.Operator)
		}
	case "in":
		if !scalar(n.Left) {
			l.refuse("in looks for a number or a string: lists and members cannot be compared")
		}
	case "matches":
		l.pattern(n.Right)
	}
}

// pattern rejects patterns that would be compiled at each iteration, or need many steps for each byte of a text.
func (l *limits) pattern(n ast.Node) {
	text, ok := n.(*ast.StringNode)
	if !ok {
		l.refuse("a pattern must be a string literal")
		return
	}
	re, err := syntax.Parse(text.Value, syntax.Perl)
	if err != nil {
		return // the compiler reports it
	}
	if prog, err := syntax.Compile(re.Simplify()); err == nil && len(prog.Inst) > maxPattern {
		l.refuse("the pattern %.40q is too large: it has too many repetitions", text.Value)
	}
}

func (l *limits) loop(node *ast.Node, n *ast.BuiltinNode) {
	predicate := func(arg ast.Node) bool { _, ok := arg.(*ast.PredicateNode); return ok }
	if !slices.ContainsFunc(n.Arguments, predicate) {
		return
	}
	below := deepest{known: l.loops}
	ast.Walk(node, &below)
	l.loops[n] = below.depth + 1
	if l.loops[n] == maxLoops+1 {
		l.refuse("more than %d loops (%s ...) are nested", maxLoops, n.Name)
	}
}

// deepest finds how deep the loops that are already known nest below a node.
type deepest struct {
	known map[ast.Node]int
	depth int
}

func (d *deepest) Visit(node *ast.Node) { d.depth = max(d.depth, d.known[*node]) }

// integerLiteral returns the value of a literal integer.
func integerLiteral(n ast.Node) (int, bool) {
	switch n := n.(type) {
	case *ast.IntegerNode:
		return n.Value, n.Value < 1<<31
	case *ast.UnaryNode:
		value, ok := integerLiteral(n.Node)
		return -value, ok && n.Operator == "-"
	}
	return 0, false
}

func number(n ast.Node) bool {
	t := n.Type()
	return t != nil && t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64
}

func scalar(n ast.Node) bool {
	if _, ok := n.(*ast.NilNode); ok || number(n) {
		return true
	}
	t := n.Type()
	return t != nil && (t.Kind() == reflect.String || t.Kind() == reflect.Bool)
}

// compile type-checks an expression and rejects one that exceeds the limits.
func compile(key, text string, env any, more ...expr.Option) (*vm.Program, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%s: %w", key, limitError{fmt.Sprintf("an expression of %d bytes, more than %d",
			len(text), maxText)})
	}
	l := &limits{loops: make(map[ast.Node]int)}
	program, err := expr.Compile(text, slices.Concat([]expr.Option{expr.Env(env), expr.Patch(l)},
		languageOptions(), more)...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %s", key, explainCompiler(oneLine(err), env))
	case l.err != nil:
		return nil, fmt.Errorf("%s: %w", key, l.err)
	}
	return program, nil
}

// oneLine returns the first line of a compiler's error, which has the position; the rest draws it.
func oneLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// noField is the compiler's message for a field that a type does not have, with the internal name of the type; noName
// that for a name.
var (
	noField = regexp.MustCompile(`type policy\.(\w+) has no field (\w+)`)
	noName  = regexp.MustCompile(`unknown name (\w+)`)
)

// explainCompiler returns a compiler's message with the names that people know, and what was probably meant.
func explainCompiler(text string, env any) string {
	if m := noName.FindStringSubmatch(text); m != nil {
		return strings.Replace(text, m[0], m[0]+suggest.DidYouMean(m[1], exprNames(reflect.TypeOf(env))), 1)
	}
	m := noField.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(env)) {
		if f.Type.Name() == m[1] {
			advice := fmt.Sprintf("%s has no field %s%s", f.Tag.Get("expr"), m[2], suggest.DidYouMean(m[2], exprNames(f.Type)))
			return strings.Replace(text, m[0], advice, 1)
		}
	}
	return text
}

// exprNames returns the names of a struct's fields in expressions.
func exprNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("expr"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// run evaluates an expression, within [maxIterations] and [maxMemory].
func run(program *vm.Program, env any) (any, error) {
	machine := vm.VM{MemoryBudget: maxMemory}
	return machine.Run(program, env)
}

// iterationBudget returns a function that counts the loop iterations of one evaluation out of shares many, and panics
// when its share of maxIterations is used up; the virtual machine turns that into an error.
func iterationBudget(shares int) func() bool {
	left := maxIterations / max(shares, 1)
	return func() bool {
		if left--; left < 0 {
			panic("its loops have too many iterations")
		}
		return true
	}
}

// truncate returns as much of a text as an expression sees.
func truncate(text string) string { return text[:min(len(text), maxInput)] }

// truncateLabels truncates the values of labels; it copies them only if one is too long.
func truncateLabels(labels map[string]string) map[string]string {
	long := false
	for _, value := range labels {
		long = long || len(value) > maxInput
	}
	if !long {
		return labels
	}
	short := make(map[string]string, len(labels))
	for name, value := range labels {
		short[name] = truncate(value)
	}
	return short
}
