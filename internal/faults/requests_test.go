package faults

import (
	"context"
	"os/exec"
	"time"
)

// lasting is how long the operators' requests hold; a new elector may add what the last one did not note.
const lasting = "3s"

// requests are what operators ask for in the middle of it all. They end by themselves.
var requests = []fault{
	{"request: move to a node", request(func(f *fleet) []string { return []string{"move", "--to", f.any().id, "--for", lasting} })},
	{"request: move to a site", request(func(f *fleet) []string { return []string{"move", "--site", f.any().site, "--for", lasting, "--force"} })},
	{"request: step down", request(func(*fleet) []string { return []string{"step-down", "--for", lasting} })},
	{"request: drain a site", request(func(f *fleet) []string { return []string{"drain", "--site", f.any().site, "--for", lasting, "--force"} })},
	{"request: cordon", request(func(f *fleet) []string { return []string{"cordon", f.victim().id, "--for", lasting} })},
	{"request: pause", request(func(*fleet) []string { return []string{"pause", "--for", lasting} })},
	{"request: pause hard", request(func(*fleet) []string { return []string{"pause", "--hard", "--for", lasting} })},
	{"request: reelect", request(func(*fleet) []string { return []string{"reelect"} })},
	{"request: clear-strikes", request(func(*fleet) []string { return []string{"clear-strikes", "--all"} })},
}

// request runs a command. Whether it is refused, or reaches anybody, is all the same: it must break nothing.
func request(args func(*fleet) []string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, f.binary, append(args(f), "--zk", f.ensemble.Addrs()[0], "--root", f.paths.Root, "--connect-timeout", "2s")...)
		out, err := cmd.CombinedOutput()
		f.t.Logf("%v: %s%v", cmd.Args[1:], out, err)
		return nothing, nil
	}
}
