package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const packagedDocs = "/usr/share/doc/zkelectd/"

var (
	content  = regexp.MustCompile(`(?m)^ *- \{src: "?([^",}]+)"?, dst: ` + packagedDocs + `([^,}]*)`)
	link     = regexp.MustCompile(`\]\(([^)#\s]+)[^)\s]*\)`)
	headings = regexp.MustCompile(`(?m)^#+ (.*)$`)
	section  = regexp.MustCompile(`docs/([a-z-]+\.md), ([A-Z])`)
	quoted   = regexp.MustCompile(`['"]([A-Z][^'"]+)['"] in docs/([a-z-]+\.md)`)
)

// Each relative link of a document leads to a file in the packages, which have only some of the repository's files.
func TestLinksWorkInThePackages(t *testing.T) {
	packaged := make(map[string]bool) // files and trees, relative to packagedDocs
	for _, m := range content.FindAllStringSubmatch(file(t, "../../../deploy/package/nfpm.yaml"), -1) {
		if src, dst := m[1], m[2]; !strings.HasSuffix(dst, "/") {
			packaged[dst] = true
		} else {
			found, err := filepath.Glob("../../../" + src)
			if err != nil || len(found) == 0 {
				t.Errorf("%s: no files, %v", src, err)
			}
			for _, path := range found {
				packaged[dst+filepath.Base(path)] = true
			}
		}
	}
	for document := range packaged {
		if filepath.Ext(document) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(file(t, "../../../"+document), -1) {
			target := filepath.Join(filepath.Dir(document), m[1])
			if strings.Contains(m[1], "://") {
				continue
			}
			found := packaged[target]
			for dir := filepath.Dir(target); !found && dir != "."; dir = filepath.Dir(dir) {
				found = packaged[dir]
			}
			if !found {
				t.Errorf("%s links to %s, which deploy/package/nfpm.yaml does not have", document, target)
			}
		}
	}
}

// The sections that comments and messages name, as in "docs/protocol.md, Taking over", exist.
func TestSectionsNamedInCodeExist(t *testing.T) {
	titles := make(map[string][]string)
	exists := func(document string, is func(title string) bool) bool {
		if titles[document] == nil {
			for _, m := range headings.FindAllStringSubmatch(file(t, "../../../docs/"+document), -1) {
				titles[document] = append(titles[document], m[1])
			}
		}
		for _, title := range titles[document] {
			if is(title) {
				return true
			}
		}
		return false
	}
	comment := regexp.MustCompile(`\n\s*//`)
	for _, root := range []string{"../../../cmd", "../../../internal"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text := comment.ReplaceAllString(string(data), "")
			for _, at := range section.FindAllStringSubmatchIndex(text, -1) {
				document, rest := text[at[2]:at[3]], text[at[4]:]
				if !exists(document, func(title string) bool { return strings.HasPrefix(rest, title) }) {
					t.Errorf("%s: docs/%s has no section %.30s", path, document, rest)
				}
			}
			for _, m := range quoted.FindAllStringSubmatch(text, -1) {
				if !exists(m[2], func(title string) bool { return title == m[1] }) {
					t.Errorf("%s: docs/%s has no section %s", path, m[2], m[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
