// Command zkelectd elects one leader in a fleet through ZooKeeper, and runs the leader-only child there and nowhere else.
package main

import "zkelectd/internal/cli"

func main() { cli.Main() }
