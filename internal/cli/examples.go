package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples are those in the help of the commands, by the path of the command without the program's name.
var examples = map[string][]string{
	"init":    {"init --zk zk1:2181 --root /cluster", "init --config /etc/zkelectd.yaml -g billing"},
	"run":     {"run --config /etc/zkelectd.yaml", "run --zk zk1:2181,zk2:2181,zk3:2181 --root /cluster --id n1 --site dc1 -- /usr/bin/app --serve"},
	"exec":    {"exec -g nightly --once-per 12h -- /usr/local/bin/nightly-report", "exec -g cleanup --once-per 50m --wait 30m -- /usr/local/bin/cleanup", "exec -g invoices --once-per 23h --at-most-once -- /usr/local/bin/send-invoices"},
	"release": {"release", "release --session-file /run/zkelectd/session"},
	"reload":  {"reload --config /etc/zkelectd.yaml", "reload --config /etc/zkelectd.yaml --allow-removals --timeout 1m"},
	"admit":   {"admit /run/zkelectd/admit.sock", "admit /run/zkelectd-billing/admit.sock"},
	"check":   {"check --config /etc/zkelectd.yaml", "check --config /etc/zkelectd.yaml --offline --effective -g billing"},
	"doctor":  {"doctor --config /etc/zkelectd.yaml", "doctor -o json", "doctor --support --file /tmp/report.tar.gz"},
	"probe":   {"probe /livez", "probe /readyz --http unix:/run/zkelectd/api.sock"},
	"status":  {"status --config /etc/zkelectd.yaml", "status -g billing --watch", "status --root /zk -o wide", "status --check"},
	"leader":  {"leader --zk zk1:2181 --root /cluster", "leader -g ingest/3", "leader --is --id n1", "leader --is --config /etc/zkelectd.yaml -g billing"},
	"explain": {"explain -g billing", "explain --term 1795359008"},
	"whatif":  {"whatif --without n1", "whatif --all", "whatif --policy new.yaml"},
	"history": {"history -n 50", "history --follow -o json", "history --fencing"},
	"move": {`move n4 --for 2h --wait --reason "kernel patch on n1"`, "move --wait", "move --dry-run", "move dc2", "move --to n4 --force",
		`move n4 --at 02:00 --reason "kernel patch on n1"`, "move --scheduled", "move --cancel"},
	"reelect":  {"reelect", "reelect --wait -g billing", "reelect --all --dry-run", "reelect --all --yes --parallel 5"},
	"cordon":   {"cordon n1 --for 2d", `cordon dc1 --reason "power works"`},
	"uncordon": {"uncordon n1", "uncordon --all --yes"},
	"drain":    {`drain n1 --wait --reason "new disks"`, "drain dc1 --wait"},
	"pause":    {`pause --for 1h --reason "change freeze"`, "pause --hard -g billing"},
	"resume":   {"resume", "resume -g billing"},
	"fence":    {"fence n1 --dry-run", "fence n1 -g billing"},
	"force":    {"force --dry-run", `force -g billing --reason "rack 7 has burned down"`, "force -g billing --confirm billing:1795359008"},
	"gameday":  {"gameday daemon --config /etc/zkelectd.yaml --takeover 20s", "gameday network -g billing --for 10s --yes"},

	"forget":        {"forget n4", "forget --lost"},
	"clear-strikes": {"clear-strikes n1", "clear-strikes --all"},
	"policy":        {"policy -g billing", "policy --apply new.yaml --dry-run", "policy --apply --config /etc/zkelectd.yaml -g billing"},
	"acl":           {"acl --config /etc/zkelectd.yaml", "acl --apply --config /etc/zkelectd.yaml --dry-run", "acl --rotate-keys -g billing"},
	"slots":         {"slots -g ingest", "slots 8 -g ingest", "slots 8 --per-node 2 -g ingest"},
	"repair":        {"repair --dry-run", "repair policy --file /etc/zkelectd.yaml"},
}

// addExamples adds the examples to the help of a command and its subcommands.
func addExamples(cmd *cobra.Command) {
	program, path, _ := strings.Cut(cmd.CommandPath(), " ")
	for i, line := range examples[path] {
		if i > 0 {
			cmd.Example += "\n"
		}
		cmd.Example += "  " + program + " " + line
	}
	for _, sub := range cmd.Commands() {
		addExamples(sub)
	}
}
