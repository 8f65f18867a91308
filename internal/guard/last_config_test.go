package guard

import (
	"io"
	"testing"
)

// The next daemon gets the last configuration that was set, even an empty one; without any there is no file.
func TestLastConfigFile(t *testing.T) {
	t.Parallel()
	g := &guard{}
	if file := g.lastConfigFile(); file != nil {
		t.Errorf("got file %s although no configuration was set", file.Name())
	}
	for _, content := range []string{"", "node: {id: a}\n"} {
		g.setLastConfig([]byte(content))
		file := g.lastConfigFile()
		if file == nil {
			t.Fatalf("no file for %q", content)
		}
		got, err := io.ReadAll(file)
		file.Close()
		if err != nil || string(got) != content {
			t.Errorf("%q, %v; want %q", got, err, content)
		}
	}
}

// A configuration that a daemon has sent before its death counts, even if it is read only afterwards.
func TestLastConfigOfDeadDaemon(t *testing.T) {
	t.Parallel()
	d := &daemon{}
	g := &guard{deadDaemon: d}
	g.receiveFromDaemon(incoming{daemon: d, msg: message{Kind: kindConfig, Config: []byte("a")}})
	if string(g.lastConfig) != "a" {
		t.Errorf("%q", g.lastConfig)
	}
}
