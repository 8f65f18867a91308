package faults

import (
	"context"
	"os/exec"
	"time"
)

// lasting is how long the operators' orders hold; a new elector may add what the last one did not note.
const lasting = "3s"

// orders are what operators ask for in the middle of it all. They end by themselves.
var orders = []fault{
	{"order: move to a node", order(func(f *fleet) []string { return []string{"move", "--to", f.any().id, "--for", lasting} })},
	{"order: move to a site", order(func(f *fleet) []string { return []string{"move", "--site", f.any().site, "--for", lasting, "--force"} })},
	{"order: step down", order(func(*fleet) []string { return []string{"step-down", "--for", lasting} })},
	{"order: drain a site", order(func(f *fleet) []string { return []string{"drain", "--site", f.any().site, "--for", lasting, "--force"} })},
	{"order: cordon", order(func(f *fleet) []string { return []string{"cordon", f.victim().id, "--for", lasting} })},
	{"order: pause", order(func(*fleet) []string { return []string{"pause", "--for", lasting} })},
	{"order: pause hard", order(func(*fleet) []string { return []string{"pause", "--hard", "--for", lasting} })},
	{"order: reelect", order(func(*fleet) []string { return []string{"reelect"} })},
	{"order: clear-strikes", order(func(*fleet) []string { return []string{"clear-strikes", "--all"} })},
}

// order runs a command. Whether it is refused, or reaches anybody, is all the same: it must break nothing.
func order(args func(*fleet) []string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, f.binary, append(args(f), "--zk", f.ensemble.Addrs()[0], "--root", f.paths.Root, "--connect-timeout", "2s")...)
		out, err := cmd.CombinedOutput()
		f.t.Logf("%v: %s%v", cmd.Args[1:], out, err)
		return nothing, nil
	}
}
