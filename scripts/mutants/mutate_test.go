package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each operator, and what it makes of one line.
func TestOperators(t *testing.T) {
	for _, c := range []struct {
		code string // of the body of func (m *T) f(a, b int, ok bool) (int, bool, error)
		want []string
	}{
		{"if a < b { g() }", []string{"negate: a < b => a >= b", "boundary: a < b => a <= b", "statement: g() => removed"}},
		{"if ok { }", []string{"negate: ok => !(ok)"}},
		{"if a == b && !ok { }", []string{
			"operand: a == b && !ok => !ok", "negate: a == b => a != b", "operand: a == b && !ok => a == b", "logic: a == b && !ok => a == b || !ok", "unary: !ok => ok",
		}},
		{"m.n = max(a, b)", []string{"statement: m.n = max(a, b) => removed", "extremum: m.n = max(a, b) => m.n = min(a, b)"}},
		{"for { break }", []string{"statement: break => removed"}},
		{"a += b", []string{"statement: a += b => removed", "arithmetic: a += b => a -= b"}},
		{"m.n = a * 2", []string{"statement: m.n = a * 2 => removed", "arithmetic: a * 2 => a / 2", "number: m.n = a * 2 => m.n = a * 3", "number: m.n = a * 2 => m.n = a * 1"}},
		{"m.on = true", []string{"statement: m.on = true => removed", "bool: m.on = true => m.on = false"}},
		{"return a, g(), err", []string{"return: return a, g(), err => return 0, g(), err", "return: return a, g(), err => return a, !(g()), err", "return: return a, g(), err => return a, g(), nil"}},
		{"_ = func() string { return name }", []string{
			"statement: _ = func() string { return name } => removed", "return: return name => return \"\"",
		}},
		{"switch {\ncase ok:\n}", []string{"case: case ok: => removed"}},
		{"switch a {\ncase x, y:\n}", []string{"case: case x, y: => removed", "case: case x, y: => case y:", "case: case x, y: => case x:"}},
		{"h(T{n: a, on: ok})", []string{"statement: h(T{n: a, on: ok}) => removed", "element: n: a => removed", "element: on: ok => removed"}},
	} {
		src := "package p\n\nfunc (m *T) f(a, b int, ok bool) (int, bool, error) {\n" + c.code + "\n}\n"
		ms, err := mutate("p.go", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range ms {
			op, found := strings.CutPrefix(m.String(), "p.go:"+strings.SplitN(m.String(), ":", 3)[1]+": T.f: ")
			if !found {
				t.Errorf("%s", m)
			}
			got = append(got, op)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %s\nwant %s", c.code, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// Mutants that read alike have keys of their own.
func TestKeysAreUnique(t *testing.T) {
	ms, err := mutate("p.go", []byte("package p\n\nfunc f() {\n g()\n g()\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(ms) != 2 || ms[0].key() != "p.go: f: g() => removed" || ms[1].key() != "p.go: f: g() => removed (2)" {
		t.Errorf("%v", ms)
	}
}

// The tests of a module decide about its mutants.
func TestTry(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module m\n\ngo 1.26.0\n",
		"p/p.go":      "package p\n\nvar one = 1\n\nfunc Less(a, b int) bool { c := 0; c = b; return a < c }\n\nfunc Loop(n int) (i int) {\n\tfor i < n {\n\t\ti++\n\t}\n\treturn i\n}\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc Test(t *testing.T) {\n\tif !Less(1, 2) || Less(2, 1) || Loop(3) != 3 || one != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ms, err := parse(root, "p/p.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b, sc, own := &bench{root, dir}, newSchema(root, dir, "p", ms), suite{pkg: "p"}
	if err := b.calibrate(t.Context(), sc, &own); err != nil {
		t.Fatal(err)
	}
	want := map[string]verdict{
		"p/p.go:3: one: number: 1 => 2":                 killed, // not in a function
		"p/p.go:5: Less: negate: a < c => a >= c":       killed,
		"p/p.go:5: Less: boundary: a < c => a <= c":     survived,
		"p/p.go:8: Loop: boundary: i < n => i <= n":     killed,
		"p/p.go:9: Loop: statement: i++ => removed":     killed, // it never ends
		"p/p.go:11: Loop: return: return i => return 0": killed,
	}
	for i, m := range ms {
		wanted, ok := want[m.String()]
		if !ok {
			continue
		}
		delete(want, m.String())
		if got, _, err := b.try(t.Context(), sc, i, []suite{own}); err != nil || got != wanted {
			t.Errorf("%s: %v, %v; want %v", m, got, err, wanted)
		}
	}
	if len(want) > 0 {
		t.Errorf("not generated: %v", want)
	}
}
