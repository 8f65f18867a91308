package policy

import (
	"fmt"
	"reflect"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"
)

// What an expression may cost. It comes out of a znode, and every elector evaluates it for every member, in its loop.
const (
	// maxText bounds it in bytes, maxNodes in operators and operands, maxLoops how deep loops are in one another.
	maxText  = 4096
	maxNodes = 500
	maxLoops = 2
	// maxRange bounds a..b.
	maxRange = 100
	// maxPattern bounds what a regular expression is compiled to, in instructions.
	maxPattern = 2000
	// maxTurns bounds the turns of all loops while all members are ranked, so that each has its share; maxMemory what lists
	// an evaluation makes, in items.
	maxTurns  = 1_000_000
	maxMemory = 100_000
	// maxSeen bounds what an expression sees of a text that a member has published.
	maxSeen = 1024
)

// functions are those of the language that depend on nothing but what they are given, not on the time nor on the order of a
// map, which is none; and that make no more of it than it was.
var functions = []string{
	"all", "none", "any", "one", "filter", "map", "find", "findIndex", "findLast", "findLastIndex", "count", "sum", "sortBy",
	"len", "abs", "ceil", "floor", "round", "int", "float", "min", "max", "mean", "median",
	"trim", "trimPrefix", "trimSuffix", "upper", "lower", "split", "indexOf", "lastIndexOf", "hasPrefix", "hasSuffix",
	"first", "last", "get", "take", "reverse", "sort",
}

// turnName is what a loop calls at each turn.
const turnName = "__turn"

// offered are the options that keep to it.
func offered() []expr.Option {
	options := []expr.Option{expr.DisableAllBuiltins(), expr.MaxNodes(maxNodes)}
	for _, name := range functions {
		options = append(options, expr.EnableBuiltin(name))
	}
	return options
}

// tooMuch says that an expression could cost too much, or asks for what is not offered.
type tooMuch struct{ why string }

func (e tooMuch) Error() string { return e.why }

// limits looks through a parsed expression for what would make it cost too much, and has loops count their turns.
type limits struct {
	err   error            // the first refusal
	loops map[ast.Node]int // how deep loops are in one another below a node that is one
}

func (l *limits) refuse(format string, args ...any) {
	if l.err == nil {
		l.err = tooMuch{fmt.Sprintf(format, args...)}
	}
}

// Visit is called for what a node consists of before it is for the node.
func (l *limits) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.VariableDeclaratorNode:
		// Its value could be put together with itself again and again.
		l.refuse("let is not offered to policies")
	case *ast.IdentifierNode:
		if n.Value == turnName {
			l.refuse("unknown name %s", turnName)
		}
	case *ast.BinaryNode:
		l.operator(n)
	case *ast.PredicateNode:
		turn := &ast.CallNode{Callee: &ast.IdentifierNode{Value: turnName}}
		n.Node = &ast.SequenceNode{Nodes: []ast.Node{turn, n.Node}}
	case *ast.BuiltinNode:
		if !slices.Contains(functions, n.Name) { // the language gives some of its loops to everybody
			l.refuse("unknown name %s", n.Name)
		}
		l.loop(node, n)
	}
}

func (l *limits) operator(n *ast.BinaryNode) {
	switch n.Operator {
	case "..":
		from, okFrom := whole(n.Left)
		to, okTo := whole(n.Right)
		if !okFrom || !okTo || to-from >= maxRange {
			l.refuse("a range must be written with its numbers, and have at most %d", maxRange)
		}
	case "+":
		if !number(n.Left) || !number(n.Right) {
			l.refuse("+ is for numbers: texts are not put together in policies")
		}
	case "==", "!=":
		if !scalar(n.Left) && !scalar(n.Right) {
			l.refuse("%s is for numbers and texts: whole lists and members are not compared", n.Operator)
		}
	case "in":
		if !scalar(n.Left) {
			l.refuse("in looks for a number or a text: whole lists and members are not compared")
		}
	case "matches":
		l.pattern(n.Right)
	}
}

// pattern refuses what would be compiled again at each turn, or takes many steps for each byte of a text.
func (l *limits) pattern(n ast.Node) {
	text, ok := n.(*ast.StringNode)
	if !ok {
		l.refuse("a pattern must be written as it is, in quotes")
		return
	}
	re, err := syntax.Parse(text.Value, syntax.Perl)
	if err != nil {
		return // the compiler says so
	}
	if prog, err := syntax.Compile(re.Simplify()); err == nil && len(prog.Inst) > maxPattern {
		l.refuse("the pattern %.40q is too large: it repeats too much", text.Value)
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
		l.refuse("more than %d loops (%s ...) are in one another", maxLoops, n.Name)
	}
}

// deepest finds the deepest of the loops that are known already.
type deepest struct {
	known map[ast.Node]int
	depth int
}

func (d *deepest) Visit(node *ast.Node) { d.depth = max(d.depth, d.known[*node]) }

// whole is an integer as it is written.
func whole(n ast.Node) (int, bool) {
	switch n := n.(type) {
	case *ast.IntegerNode:
		return n.Value, n.Value < 1<<31
	case *ast.UnaryNode:
		value, ok := whole(n.Node)
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

// compile type-checks an expression, and refuses one that could cost too much.
func compile(key, text string, env any, more ...expr.Option) (*vm.Program, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%s: %w", key, tooMuch{fmt.Sprintf("an expression of %d bytes, more than %d", len(text), maxText)})
	}
	l := &limits{loops: make(map[ast.Node]int)}
	program, err := expr.Compile(text, slices.Concat([]expr.Option{expr.Env(env), expr.Patch(l)}, offered(), more)...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %s", key, oneLine(err))
	case l.err != nil:
		return nil, fmt.Errorf("%s: %w", key, l.err)
	}
	return program, nil
}

// oneLine keeps the position that the error names, and drops the drawing of it.
func oneLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// run evaluates an expression. It never takes long, see [maxTurns].
func run(program *vm.Program, env any) (any, error) {
	machine := vm.VM{MemoryBudget: maxMemory}
	return machine.Run(program, env)
}

// turns counts the turns of the loops of one evaluation, one of shares many.
func turns(shares int) func() bool {
	left := maxTurns / max(shares, 1)
	return func() bool {
		if left--; left < 0 {
			panic("its loops take too many turns")
		}
		return true
	}
}

// seen is as much of a text as an expression sees.
func seen(text string) string { return text[:min(len(text), maxSeen)] }

// seenLabels copies labels only if one of them is too long.
func seenLabels(labels map[string]string) map[string]string {
	long := false
	for _, value := range labels {
		long = long || len(value) > maxSeen
	}
	if !long {
		return labels
	}
	short := make(map[string]string, len(labels))
	for name, value := range labels {
		short[name] = seen(value)
	}
	return short
}
