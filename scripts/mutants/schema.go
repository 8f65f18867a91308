package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A schema is a package with all of its mutants compiled in, each as a copy of the function that it changes. The
// environment variable MUTANT selects one, so that the tests are built once and not once for each mutant.
type schema struct {
	root, dir, pkg string
	mutants        []mutant
	broken         map[int]bool // does not compile, or is not in a function
	lines          map[string][]span
	overlay        string
}

// span is the lines of one copy in the file that is generated.
type span struct{ first, last, mutant int }

// newSchema returns the schema of a package. Mutants outside of functions are left out: see outside.
func newSchema(root, dir, pkg string, mutants []mutant) *schema {
	s := &schema{root: root, dir: dir, pkg: pkg, mutants: mutants, broken: make(map[int]bool)}
	for i, m := range mutants {
		s.broken[i] = m.decl == nil
	}
	return s
}

// outside reports whether a mutant is in a declaration that is not a function, and has to be built by itself.
func (s *schema) outside(i int) bool { return s.mutants[i].decl == nil }

const selector = `package %s

import (
	"os"
	"strconv"
)

var mutant__ = func() int {
	n, err := strconv.Atoi(os.Getenv("MUTANT"))
	if err != nil {
		return -1
	}
	return n
}()
`

// generate writes the files of the schema and the overlay that has the go command use them.
func (s *schema) generate() error {
	if err := os.MkdirAll(filepath.Join(s.dir, "schema"), 0o700); err != nil {
		return err
	}
	s.lines = make(map[string][]span)
	replace := make(map[string]string)
	add := func(name, text string) error {
		generated := filepath.Join(s.dir, "schema", filepath.Base(name))
		replace[filepath.Join(s.root, name)] = generated
		return os.WriteFile(generated, []byte(text), 0o600)
	}
	var files []string
	for _, m := range s.mutants {
		if !slices.Contains(files, m.file) {
			files = append(files, m.file)
		}
	}
	for _, name := range files {
		text, err := s.file(name)
		if err != nil {
			return err
		}
		if err := add(name, text); err != nil {
			return err
		}
	}
	if err := add(filepath.Join(s.pkg, "mutant__.go"), fmt.Sprintf(selector, filepath.Base(s.pkg))); err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	s.overlay = filepath.Join(s.dir, "schema.json")
	return os.WriteFile(s.overlay, data, 0o600)
}

// edit replaces the bytes from start to end of a file.
type edit struct {
	start, end int
	with       string
}

// apply makes the edits, which must not overlap, to src, which begins at byte base of the file.
func apply(src string, base int, edits ...edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(b.start, a.start) })
	for _, e := range edits {
		src = src[:e.start-base] + e.with + src[e.end-base:]
	}
	return src
}

// file returns one file of the schema: the original, whose functions begin with a choice, and the copies.
func (s *schema) file(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil {
		return "", err
	}
	src := string(data)
	choices := make(map[*ast.FuncDecl][]int)
	for i, m := range s.mutants {
		if m.file == name && !s.broken[i] {
			choices[m.decl] = append(choices[m.decl], i)
		}
	}
	var heads []edit
	var copies []string
	var owners []int
	for decl, list := range choices {
		h := newHead(decl)
		choice := " switch mutant__ {"
		for _, i := range list {
			choice += h.call(i)
			m := s.mutants[i]
			copies = append(copies, apply(src[h.start:h.end], h.start, append(h.edits(i), edit{m.start, m.end, m.with})...))
			owners = append(owners, i)
		}
		heads = append(heads, h.names...)
		heads = append(heads, edit{h.body, h.body, choice + "}; "}) // in the line of the brace
	}
	out := apply(src, 0, heads...) + "\n"
	for k, text := range copies {
		first := 1 + strings.Count(out, "\n")
		out += text + "\n"
		s.lines[filepath.Base(name)] = append(s.lines[filepath.Base(name)], span{first, strings.Count(out, "\n"), owners[k]})
	}
	return out, nil
}

// head is the signature of a function: what a copy of it needs another name for, and how it is called.
type head struct {
	decl             *ast.FuncDecl
	start, end, body int
	names            []edit // for parameters without a name
	callee           string
	args             []string
}

func newHead(d *ast.FuncDecl) *head {

	h := &head{decl: d, start: int(d.Pos()) - 1, end: int(d.End()) - 1, body: int(d.Body.Lbrace), callee: d.Name.Name}
	if d.Recv != nil {
		h.callee = h.fields(d.Recv)[0] + "." + d.Name.Name
	}
	h.args = h.fields(d.Type.Params)
	return h
}

// fields returns the names in a list of parameters, and gives a name to those that have none.
func (h *head) fields(list *ast.FieldList) []string {
	var out []string
	fresh := func(start, end int, gap string) {
		name := fmt.Sprintf("p%d__", len(h.names))
		h.names = append(h.names, edit{start, end, name + gap})
		out = append(out, name)
	}
	for _, f := range list.List {
		if len(f.Names) == 0 {
			fresh(int(f.Type.Pos())-1, int(f.Type.Pos())-1, " ")
		}
		for _, n := range f.Names {
			if n.Name == "_" {
				fresh(int(n.Pos())-1, int(n.End())-1, "")
			} else {
				out = append(out, n.Name)
			}
		}
		if _, ok := f.Type.(*ast.Ellipsis); ok {
			out[len(out)-1] += "..."
		}
	}
	return out
}

func (h *head) copyName(i int) string { return fmt.Sprintf("%s__%d", h.decl.Name.Name, i) }

// typeArgs passes the type parameters on, which cannot always be inferred.
func (h *head) typeArgs() string {
	if h.decl.Type.TypeParams == nil {
		return ""
	}
	var names []string
	for _, f := range h.decl.Type.TypeParams.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// call is the case that runs copy i.
func (h *head) call(i int) string {
	call := fmt.Sprintf("%s__%d%s(%s)", h.callee, i, h.typeArgs(), strings.Join(h.args, ", "))
	if h.decl.Type.Results == nil {
		return fmt.Sprintf(" case %d: %s; return;", i, call)
	}
	return fmt.Sprintf(" case %d: return %s;", i, call)
}

// edits rename copy i.
func (h *head) edits(i int) []edit {
	name := h.decl.Name
	return append(slices.Clone(h.names), edit{int(name.Pos()) - 1, int(name.End()) - 1, h.copyName(i)})
}

var compileError = regexp.MustCompile(`(?m)^(?:\./)?(?:\S*/)?([^/\s:]+\.go):(\d+)(?::\d+)?: `)

// build builds the tests of a package with the mutants in it. Those that do not compile are left out.
func (s *schema) build(ctx context.Context, pkg string) (string, error) {
	b := &bench{s.root, s.dir}
	for {
		if err := s.generate(); err != nil {
			return "", err
		}
		binary, err := b.compile(ctx, pkg, "-overlay="+s.overlay, "-gcflags=-e")
		if err == nil {
			kept := filepath.Join(s.dir, strings.ReplaceAll(pkg, "/", "_")+".test")
			return kept, os.Rename(binary, kept)
		}
		if !errors.Is(err, errCompile) {
			return "", err
		}
		found := false
		for _, e := range compileError.FindAllStringSubmatch(err.Error(), -1) {
			line, convErr := strconv.Atoi(e[2])
			if convErr != nil {
				continue
			}
			for _, l := range s.lines[e[1]] {
				if l.first <= line && line <= l.last && !s.broken[l.mutant] {
					s.broken[l.mutant], found = true, true
				}
			}
		}
		if !found {
			return "", err
		}
	}
}
