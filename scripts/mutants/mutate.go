package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one small change of one file.
type mutant struct {
	file       string // relative to the module's root
	line       int
	fn         string // the function, method or declaration that is changed
	op         string
	start, end int // the bytes that are replaced by with
	with       string
	was        string        // the source of what is changed, in one line
	now        string        // what it becomes
	nth        string        // tells it from others with the same text in the same function
	decl       *ast.FuncDecl // nil outside of functions
}

// key identifies m. It has no line numbers, so edits elsewhere do not change it.
func (m mutant) key() string {
	return fmt.Sprintf("%s: %s: %s => %s%s", m.file, m.fn, m.was, m.now, m.nth)
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s: %s => %s%s", m.file, m.line, m.fn, m.op, m.was, m.now, m.nth)
}

// parse returns the mutants of one file of the module at root.
func parse(root, name string) ([]mutant, error) {
	src, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	return mutate(name, src)
}

// mutate returns the mutants of one file, ordered by position.
func mutate(name string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &generator{fset: fset, src: src, name: name}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			g.fn, g.decl = funcName(d), d
			if d.Body != nil {
				g.results = [][]string{g.resultTypes(d.Type)}
				g.walk(d.Body)
			}
		case *ast.GenDecl:
			g.decl = nil
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					g.fn = v.Names[0].Name
					for _, x := range v.Values {
						g.walk(x)
					}
				}
			}
		}
	}
	slices.SortStableFunc(g.out, func(a, b mutant) int { return cmp.Compare(a.start, b.start) })
	count := make(map[string]int)
	for i := range g.out {
		m := &g.out[i]
		if count[m.key()]++; count[m.key()] > 1 {
			m.nth = fmt.Sprintf(" (%d)", count[m.key()])
		}
	}
	return g.out, nil
}

func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

// A generator collects the mutants of one file.
type generator struct {
	fset    *token.FileSet
	src     []byte
	name    string
	fn      string
	decl    *ast.FuncDecl
	results [][]string // the result types of the functions around the node being visited, innermost last
	stack   []ast.Node // the nodes around the node being visited, and itself
	out     []mutant
}

// text returns the source of n.
func (g *generator) text(n ast.Node) string {
	return string(g.src[g.offset(n.Pos()):g.offset(n.End())])
}

func (g *generator) offset(p token.Pos) int { return g.fset.Position(p).Offset }

// oneLine returns s with every run of white space replaced by one blank.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// replace adds a mutant in which the bytes from start to end become with; around is the node that shows the change to a
// reader.
func (g *generator) replace(op string, around ast.Node, start, end token.Pos, with string) {
	from, to := g.offset(start), g.offset(end)
	a, b := g.offset(around.Pos()), g.offset(around.End())
	now := oneLine(string(g.src[a:from]) + with + string(g.src[to:b]))
	if now == "" {
		now = "removed"
	}
	g.out = append(g.out, mutant{
		file: g.name, line: g.fset.Position(start).Line, fn: g.fn, op: op,
		start: from, end: to, with: with, decl: g.decl, was: oneLine(g.text(around)), now: now,
	})
}

// swap adds a mutant in which n becomes with.
func (g *generator) swap(op string, n ast.Node, with string) {
	g.replace(op, n, n.Pos(), n.End(), with)
}

// swapLeaf does so with a single word or number, and shows the expression around it.
func (g *generator) swapLeaf(op string, n ast.Node, with string) {
	var around = n
	for _, outer := range slices.Backward(g.stack[:len(g.stack)-1]) {
		if text := g.text(outer); len(text) > 120 || strings.Contains(text, "\n") {
			break
		}
		if around = outer; len(g.text(outer)) > 12 {
			break
		}
	}
	g.replace(op, around, n.Pos(), n.End(), with)
}

// walk visits n and everything below it.
func (g *generator) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil {
			if _, ok := g.stack[len(g.stack)-1].(*ast.FuncLit); ok {
				g.results = g.results[:len(g.results)-1]
			}
			g.stack = g.stack[:len(g.stack)-1]
			return true
		}
		if f, ok := n.(*ast.FuncLit); ok {
			g.results = append(g.results, g.resultTypes(f.Type))
		}
		g.stack = append(g.stack, n)
		g.visit(n)
		return true
	})
}

func (g *generator) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		g.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT || n.Op == token.SUB {
			g.replace("unary", n, n.Pos(), n.X.Pos(), "")
		}
	case *ast.IfStmt:
		g.condition(n.Cond)
	case *ast.BlockStmt:
		g.statements(n.List)
	case *ast.CaseClause:
		g.clause(n)
	case *ast.CommClause:
		g.statements(n.Body)
	case *ast.ReturnStmt:
		g.returns(n)
	case *ast.Ident:
		switch n.Name {
		case "true":
			g.swapLeaf("bool", n, "false")
		case "false":
			g.swapLeaf("bool", n, "true")
		case "min":
			g.swapLeaf("extremum", n, "max")
		case "max":
			g.swapLeaf("extremum", n, "min")
		}
	case *ast.BasicLit:
		g.number(n)
	case *ast.CompositeLit:
		g.elements(n)
	case *ast.AssignStmt:
		if with, ok := assignments[n.Tok]; ok {
			g.replace("arithmetic", n, n.TokPos, n.TokPos+token.Pos(len(n.Tok.String())), with)
		}
	}
}

var (
	negations = map[token.Token]string{
		token.EQL: "!=", token.NEQ: "==", token.LSS: ">=", token.LEQ: ">", token.GTR: "<=", token.GEQ: "<",
	}
	boundaries = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}
	logic      = map[token.Token]string{token.LAND: "||", token.LOR: "&&"}
	arithmetic = map[token.Token]string{token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*",
		token.AND: "|", token.OR: "&"}
	assignments = map[token.Token]string{token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.MUL_ASSIGN: "/=",
		token.QUO_ASSIGN: "*="}
)

func (g *generator) binary(n *ast.BinaryExpr) {
	end := n.OpPos + token.Pos(len(n.Op.String()))
	for _, o := range []struct {
		op    string
		table map[token.Token]string
	}{{"negate", negations}, {"boundary", boundaries}, {"logic", logic}, {"arithmetic", arithmetic}} {
		if with, ok := o.table[n.Op]; ok {
			g.replace(o.op, n, n.OpPos, end, with)
		}
	}
	if _, ok := logic[n.Op]; !ok {
		return
	}
	g.replace("operand", n, n.X.End(), n.End(), "")
	if x, ok := n.X.(*ast.BinaryExpr); !ok || x.Op != n.Op { // the operands of a chain are dropped one by one
		g.replace("operand", n, n.Pos(), n.Y.Pos(), "")
	}
}

// condition negates a condition that is neither a comparison nor a combination: their operators are changed instead.
func (g *generator) condition(x ast.Expr) {
	switch x := x.(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr:
	default:
		g.swap("negate", x, "!("+g.text(x)+")")
	}
}

// statements removes each statement that can be removed.
func (g *generator) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
			g.swap("statement", s, "")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				g.swap("statement", s, "")
			}
		case *ast.BranchStmt:
			if s.Tok == token.BREAK || s.Tok == token.CONTINUE {
				g.swap("statement", s, "")
			}
		case *ast.ReturnStmt:
			if len(s.Results) == 0 {
				g.swap("statement", s, "")
			}
		}
	}
}

// clause removes a case, each of several values of it, and the statements in it.
func (g *generator) clause(n *ast.CaseClause) {
	g.statements(n.Body)
	head := &header{n.Pos(), n.Colon + 1}
	g.replace("case", n, n.Pos(), n.End(), "")
	g.out[len(g.out)-1].was = oneLine(g.text(head))
	if len(n.List) < 2 {
		return
	}
	for i, x := range n.List {
		if i == 0 {
			g.replace("case", head, x.Pos(), n.List[1].Pos(), "")
		} else {
			g.replace("case", head, n.List[i-1].End(), x.End(), "")
		}
	}
}

// header is a part of a node.
type header struct{ pos, end token.Pos }

func (h *header) Pos() token.Pos { return h.pos }
func (h *header) End() token.Pos { return h.end }

// resultTypes returns the source of each result's type.
func (g *generator) resultTypes(t *ast.FuncType) []string {
	var out []string
	if t.Results == nil {
		return nil
	}
	for _, f := range t.Results.List {
		for range max(1, len(f.Names)) {
			out = append(out, g.text(f.Type))
		}
	}
	return out
}

// returns replaces each result by the zero value of its type; conditions are negated.
func (g *generator) returns(n *ast.ReturnStmt) {
	types := g.results[len(g.results)-1]
	if len(types) != len(n.Results) {
		return
	}
	for i, x := range n.Results {
		was := g.text(x)
		var with string
		switch t := types[i]; {
		case t == "bool":
			switch x.(type) {
			case *ast.BinaryExpr, *ast.Ident, *ast.UnaryExpr: // changed by other operators
				if was == "true" || was == "false" || was[0] == '!' || strings.ContainsAny(was, "&|=<>") {
					continue
				}
			}
			with = "!(" + was + ")"
		case t == "string":
			with = `""`
		case t == "time.Duration", strings.HasPrefix(t, "int"), strings.HasPrefix(t, "uint"), strings.HasPrefix(t, "float"):
			with = "0"
		case t == "error", t == "any", strings.HasPrefix(t, "*"), strings.HasPrefix(t, "[]"),
			strings.HasPrefix(t, "map["), strings.HasPrefix(t, "func("):
			with = "nil"
		}
		if with != "" && with != was {
			g.replace("return", n, x.Pos(), x.End(), with)
		}
	}
}

// number changes an integer by one in both directions.
func (g *generator) number(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	v, err := strconv.ParseInt(n.Value, 0, 64)
	if err != nil {
		return
	}
	g.swapLeaf("number", n, strconv.FormatInt(v+1, 10))
	if v > 0 {
		g.swapLeaf("number", n, strconv.FormatInt(v-1, 10))
	}
}

// elements drops each field or element of a literal.
func (g *generator) elements(n *ast.CompositeLit) {
	for _, x := range n.Elts {
		end := x.End()
		rest := g.src[g.offset(end):g.offset(n.Rbrace)]
		if i := slices.IndexFunc(rest, func(b byte) bool { return !strings.ContainsRune(" \t\n", rune(b)) }); i >= 0 &&
			rest[i] == ',' {
			end += token.Pos(i + 1)
		}
		g.replace("element", n, x.Pos(), end, "")
		m := &g.out[len(g.out)-1]
		m.was, m.now = oneLine(g.text(x)), "removed"
	}
}
