package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandsIgnoreGroupsWithErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, file, text)
		return file
	}
	file := write("main.yaml", "zookeeper: {root: /zkelectd}\ngroups_dir: "+dir+"/groups\n")
	if h, ignored, err := LoadCommand(Sources{File: file}); err != nil || ignored == nil || len(h.Groups) != 0 || h.Dir == "" {
		t.Errorf("without the directory: %+v, %v, %v", h, ignored, err)
	}
	write("groups/billing.yaml", "policy: {type: first}\n")
	write("groups/mail.yaml", "policy: {type: frist}\n")
	h, ignored, err := LoadCommand(Sources{File: file})
	if err != nil || len(h.Groups) != 1 || h.Groups[0].Name != "billing" || h.Groups[0].Config.ZooKeeper.Root != "/zkelectd/billing" {
		t.Errorf("%+v, %v", h.Groups, err)
	}
	if ignored == nil || !strings.Contains(ignored.Error(), "mail.yaml") || strings.Contains(ignored.Error(), "billing") {
		t.Errorf("ignored: %v", ignored)
	}
	write("main.yaml", "zookeper: {}\ngroups_dir: "+dir+"/groups\n")
	if _, _, err := LoadCommand(Sources{File: file}); err == nil || !strings.Contains(err.Error(), "zookeper") {
		t.Errorf("an error in the main file: %v", err)
	}
}
