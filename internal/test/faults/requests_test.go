package faults

import (
	"context"
	"os/exec"
	"time"
)

// requestDuration is how long requests last; with a new elector they may last longer.
const requestDuration = "3s"

// requests are operators' requests during other faults. They end by themselves.
var requests = []fault{
	{"request: move to a node", request(func(f *fleet) []string { return []string{"move", "--to", f.anyNode().id, "--for", requestDuration} })},
	{"request: move to a site", request(func(f *fleet) []string {
		return []string{"move", "--site", f.anyNode().site, "--for", requestDuration, "--force"}
	})},
	{"request: move away", request(func(*fleet) []string { return []string{"move", "--for", requestDuration} })},
	{"request: drain a site", request(func(f *fleet) []string {
		return []string{"drain", "--site", f.anyNode().site, "--for", requestDuration, "--force"}
	})},
	{"request: cordon", request(func(f *fleet) []string { return []string{"cordon", f.victim().id, "--for", requestDuration} })},
	{"request: pause", request(func(*fleet) []string { return []string{"pause", "--for", requestDuration} })},
	{"request: pause hard", request(func(*fleet) []string { return []string{"pause", "--hard", "--for", requestDuration} })},
	{"request: reelect", request(func(*fleet) []string { return []string{"reelect"} })},
	{"request: clear-strikes", request(func(*fleet) []string { return []string{"clear-strikes", "--all"} })},
}

// request runs a command. It may fail or be refused, but must not break anything.
func request(args func(*fleet) []string) func(*fleet) (func(), error) {
	return func(f *fleet) (func(), error) {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, f.binary, append(args(f), "--zk", f.ensemble.Addrs()[0], "--root", f.anyGroup().paths.Root, "--connect-timeout", "2s")...)
		out, err := cmd.CombinedOutput()
		f.t.Logf("%v: %s%v", cmd.Args[1:], out, err)
		return noHeal, nil
	}
}
