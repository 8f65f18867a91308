package recipes

import (
	"flag"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"zkelectd/internal/config"
	"zkelectd/internal/test/testhelper"
)

var (
	realRuns = flag.Bool("recipes.real", false, "run each recipe with real servers and programs")
	keep     = flag.Bool("recipes.keep", false, "keep the directories with the logs")
)

// recipes are the real runs of the recipes by the names of their pages. The file NAME_test.go adds its own in func init.
var recipes = make(map[string]func(*testing.T))

const (
	pages    = "../../../docs/recipes"
	examples = "../../../deploy/examples"
)

// binary is the program, built once for all real runs.
var binary string

func TestMain(m *testing.M) { testhelper.RunMain(m) }

// TestReal runs the recipes, one after another, as make recipes-test does: go test ./internal/test/recipes -run Real/cron-job
// -recipes.real. Without the flag there are no runs.
func TestReal(t *testing.T) {
	if !*realRuns {
		return
	}
	binary = testhelper.BuildZkelectd(t, t.TempDir(), "")
	for _, name := range slices.Sorted(maps.Keys(recipes)) {
		t.Run(name, recipes[name])
	}
}

// Each recipe has a page, files, a real run and a line in the index.
func TestRecipesAreComplete(t *testing.T) {
	index := read(t, filepath.Join(pages, "README.md"))
	for _, name := range names(t) {
		page := filepath.Join(pages, name+".md")
		if _, err := os.Stat(page); err != nil {
			t.Errorf("%s has no page: %v", name, err)
			continue
		}
		if recipes[name] == nil {
			t.Errorf("%s has no real run: add it to recipes in %s_test.go", name, name)
		}
		if !strings.Contains(index, "]("+name+".md) |") {
			t.Errorf("docs/recipes/README.md has no line for %s", name)
		}
		files := filesOf(t, name)
		if len(files) == 0 {
			t.Errorf("deploy/examples/%s has no files", name)
		}
		text, dir := read(t, page), filepath.Join(examples, name)
		if !strings.Contains(text, "`"+strings.TrimPrefix(dir, "../../../")+"`") {
			t.Errorf("%s does not name `%s`", page, strings.TrimPrefix(dir, "../../../"))
		}
		for _, file := range files {
			if own := strings.TrimPrefix(file, dir+"/"); !strings.Contains(text, own) {
				t.Errorf("%s does not name %s", page, own)
			}
		}
	}
}

// names returns all recipes: those with a page, with files or with a real run.
func names(t *testing.T) []string {
	t.Helper()
	all := make(map[string]bool)
	for name := range recipes {
		all[name] = true
	}
	for _, dir := range []string{pages, examples} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name := strings.TrimSuffix(e.Name(), ".md"); name != "README" {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// filesOf returns the paths of the files of a recipe.
func filesOf(t *testing.T, name string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(filepath.Join(examples, name), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return all
}

// Every configuration of zkelectd, a file zkelectd*.yaml, is valid and warns about nothing.
func TestConfigurationsAreValid(t *testing.T) {
	for _, name := range names(t) {
		for _, file := range filesOf(t, name) {
			if ok, _ := filepath.Match("zkelectd*.yaml", filepath.Base(file)); !ok {
				continue
			}
			h, err := config.LoadHost(config.Sources{File: file})
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			for _, warning := range h.Warnings {
				t.Errorf("%s: %s", file, warning)
			}
			for _, key := range h.Unset {
				t.Errorf("%s: %s is not set", file, key)
			}
		}
	}
}

var shebang = regexp.MustCompile(`^#!(/usr)?/bin/(env )?(ba)?sh\b`)

// Programs are executable, and the shell can parse its scripts.
func TestScriptsParse(t *testing.T) {
	for _, name := range names(t) {
		for _, file := range filesOf(t, name) {
			text := read(t, file)
			if !strings.HasPrefix(text, "#!") {
				continue
			}
			if info, err := os.Stat(file); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s is not executable", file)
			}
			if shebang.MatchString(text) {
				if out, err := exec.CommandContext(t.Context(), "bash", "-n", file).CombinedOutput(); err != nil {
					t.Errorf("%s: %s", file, out)
				}
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
