package guard

import (
	"io"
	"testing"
)

// Even an empty configuration file is a good one; none that was handed over is none.
func TestLastConfigIsTheOneHandedOver(t *testing.T) {
	t.Parallel()
	g := &guard{}
	if file := g.lastConfigFile(); file != nil {
		t.Errorf("%s is offered though none was handed over", file.Name())
	}
	for _, content := range []string{"", "node: {id: a}\n"} {
		g.setLastConfig([]byte(content))
		file := g.lastConfigFile()
		if file == nil {
			t.Fatalf("%q is not kept", content)
		}
		got, err := io.ReadAll(file)
		file.Close()
		if err != nil || string(got) != content {
			t.Errorf("%q, %v; want %q", got, err, content)
		}
	}
}

// What a daemon has said before its death counts, even if it is read only then.
func TestLastWordsHoldTheConfiguration(t *testing.T) {
	t.Parallel()
	d := &daemon{}
	g := &guard{deadDaemon: d}
	g.receiveFromDaemon(incoming{daemon: d, msg: message{Kind: kindConfig, Config: []byte("a")}})
	if string(g.lastConfig) != "a" {
		t.Errorf("%q", g.lastConfig)
	}
}
