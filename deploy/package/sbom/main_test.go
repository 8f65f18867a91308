package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The document for the binary of this test lists all of its modules, and is reproducible.
func TestDocumentNamesEveryModule(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(out, self, "1.2.3", "2026-01-02T03:04:05Z"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two documents for one binary differ")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&first, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]string)
	for _, c := range *bom.Components {
		named[c.Name] = c.Version
	}
	if len(info.Deps) == 0 || named["std"] != info.GoVersion {
		t.Errorf("%d modules, %q of %s", len(info.Deps), named["std"], info.GoVersion)
	}
	for _, m := range info.Deps {
		if named[m.Path] != m.Version {
			t.Errorf("%s is %q instead of %q", m.Path, named[m.Path], m.Version)
		}
	}
	if len(named) != len(info.Deps)+1 || len(*(*bom.Dependencies)[0].Dependencies) != len(named) {
		t.Errorf("%d components for %d modules", len(named), len(info.Deps))
	}
	if bom.Metadata.Component.Version != "1.2.3" || len((*bom.Metadata.Component.Hashes)[0].Value) != 64 {
		t.Errorf("%+v", bom.Metadata.Component)
	}
}

func TestFileThatIsNotABinaryIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(&bytes.Buffer{}, file, "1", "2026-01-02T03:04:05Z"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
