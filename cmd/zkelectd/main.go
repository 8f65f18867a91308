// Command zkelectd elects one leader in a fleet through ZooKeeper, and runs the leader-only child there and nowhere
// else.
package main

import (
	"os"

	"zkelectd/internal/cli"
	"zkelectd/internal/guard"
)

func main() {
	guard.MaybeRunKeeper()
	os.Exit(cli.Run())
}
