package cli

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"
)

// A command that an error says to type names the group of the command line.
func TestCommandsKeepTheConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args       []string
		text, want string
	}{
		{[]string{"move", "n2"}, "run 'zkelectd resume' first", "run 'zkelectd resume' first"},
		{[]string{"move", "n2", "--config", "a b.yaml"}, "run 'zkelectd resume -g g' first", "run 'zkelectd resume -g g --config a\\ b.yaml' first"},
		{[]string{"move", "--zk=h:1", "--root", "/r"}, "'zkelectd resume'; 'zkelectd explain'", "'zkelectd resume --zk h:1 --root /r'; 'zkelectd explain --zk h:1 --root /r'"},
		{[]string{"init", "--config", "c"}, "'zkelectd init --root /x' or 'zkelectd --help'", "'zkelectd init --root /x' or 'zkelectd --help'"},
		{[]string{"exec", "--", "--root", "/r"}, "'zkelectd status'", "'zkelectd status'"},
	} {
		if got := withConnection(c.text, c.args); got != c.want {
			t.Errorf("%q: got  %s\nwant %s", c.args, got, c.want)
		}
	}
}

// A wrong number of arguments is answered with the usage.
func TestUsageOfArguments(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{Use: "drain NODE", Run: func(*cobra.Command, []string) {}}
	for text, want := range map[string]string{
		"accepts 1 arg(s), received 0":        "drain accepts 1 arg(s), received 0; usage: drain NODE",
		`unknown command "1h" for "zkelectd"`: "drain takes no arguments, only flags; usage: drain NODE",
		"no ZooKeeper server answers":         "no ZooKeeper server answers",
	} {
		if got := sayUsage(cmd, errors.New(text)); got.Error() != want {
			t.Errorf("%s", got)
		}
	}
	if sayUsage(cmd, nil) != nil {
		t.Error("an error of nothing")
	}
}
