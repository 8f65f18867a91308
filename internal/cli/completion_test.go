package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Completion offers what is there, quickly, and never an error.
func TestCompletion(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.join("n1", "n2")
	d := newDesk(t)
	d.write("etc.yaml", fmt.Sprintf("zookeeper: {servers: [%q], root: %s}\n", shared.Addr(), f.paths.Root))
	offers := func(want string, args ...string) {
		t.Helper()
		var out []byte
		f.eventually(fmt.Sprintf("%v offers %q", args, want), func() bool { // a loaded machine can take longer than a second
			var err error
			out, err = d.command(append([]string{"__complete"}, args...)...).Output()
			return err == nil && string(out) == strings.ReplaceAll(want, " ", "\n")
		}, func() string { return string(out) })
	}
	offers("dc1 n1 n2 :4 ", "drain", "")
	offers("n1 n2 :4 ", "move", "--to", "")
	offers("n1 n2 :4 ", "clear-strikes", "n")
	offers("dc1 :4 ", "move", "--site", "d")
	offers("n1,n1 n1,n2 :4 ", "whatif", "--without", "n1,")
	offers("json :4 ", "history", "-o", "j")
	offers("debug error info warn :4 ", "run", "--log-level", "")
	offers("root policy control history roster slots elected fence current :4 ", "repair", "")
	offers(":4 ", "drain", "n1", "")
	began := time.Now()
	offers(":4 ", "drain", "--zk", "127.0.0.1:"+closedPort(t), "")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("without a server: after %s", took)
	}
	d.write("etc.yaml", "zookeeper: [")
	offers(":4 ", "drain", "")
}
