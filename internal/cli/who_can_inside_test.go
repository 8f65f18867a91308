package cli

import (
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"zkelectd/internal/cluster"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

// atTheClientPort returns the attempts of a ZooKeeper client without the group's password.
func (f *fleet) atTheClientPort() attempts {
	conn, _, err := gozk.Connect(f.servers, 30*time.Second, gozk.WithLogInfo(false))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(conn.Close)
	p := f.paths
	closeHolder := func(but int64) int64 { return f.closeHolder(conn, but) }
	intrude := func(_, _ string) bool { return closeHolder(0) != 0 }
	return attempts{
		toRead: func() bool {
			_, _, err := conn.Children(p.Root)
			done := err == nil
			for _, path := range []string{p.Leader(), p.Elected(), p.Current(), p.Policy(), p.Node("a")} {
				if exists, stat, err := conn.Exists(path); err != nil || !exists || stat.DataLength == 0 {
					f.t.Errorf("the size of %s is not visible: %v", path, err)
				}
				_, _, err := conn.Get(path)
				done = done || err == nil
			}
			return done
		},
		toRunCode: func() bool {
			done := false
			for _, path := range []string{p.Leader(), p.Elected(), p.Current(), p.Policy(), p.Node("a")} {
				_, err := conn.Set(path, []byte(`{"command":["touch","marker"]}`), -1)
				_, created := conn.Create(path+"/command", nil, 0, gozk.WorldACL(gozk.PermAll))
				done = done || err == nil || created == nil
			}
			return done
		},
		toDouble: func() bool {
			_, two := f.attempt(func(leader, other string) bool {
				daemon := f.daemon(leader)
				syscall.Kill(daemon, syscall.SIGSTOP) // it learns too late that its session has ended
				f.t.Cleanup(func() { syscall.Kill(daemon, syscall.SIGCONT) })
				return intrude(leader, other)
			})
			return two
		},
		toMove: func() bool { moved, _ := f.attempt(intrude); return moved },
		toStop: func() bool {
			f.waitForBoth()
			before, last := len(ledger(f.t, f.ledgerFile())), int64(0)
			for range 5 {
				last = closeHolder(last)
			}
			return len(ledger(f.t, f.ledgerFile())) == before
		},
	}
}

// closeHolder closes the session that holds current, unless it is the one given, and returns it.
func (f *fleet) closeHolder(conn *gozk.Conn, but int64) (closed int64) {
	f.eventually("a leader, and its session", func() bool {
		_, stat, err := conn.Exists(f.paths.Current())
		if err != nil || stat.EphemeralOwner == 0 || stat.EphemeralOwner == but {
			return false
		}
		closed = stat.EphemeralOwner
		e := zk.SessionHandle{Servers: f.servers, Session: closed, Password: zkserver.SessionPassword(closed)}
		return zk.CloseSession(f.t.Context(), e) == nil
	})
	return closed
}

// withPassword returns the attempts of a user of a member host, who can read the group's password from its file. What is
// written to ZooKeeper below is written with that password.
func (f *fleet) withPassword(user uint32) attempts {
	submit := func(args ...string) bool {
		cmd := f.as(user, "zkelectd", append(args, "--zk", f.servers[0], "--root", f.paths.Root)...)
		cmd.Env = append(cmd.Env, f.env...)
		out, err := cmd.CombinedOutput()
		f.t.Logf("%v: %v %s", args, err, out)
		return err == nil
	}
	move := func() bool {
		moved, _ := f.attempt(func(_, other string) bool {
			submit("clear-strikes", "--all") // the forged release counts as a failure
			return submit("move", "--to", other, "--force")
		})
		return moved
	}
	tries := attempts{
		toRead: func() bool { return submit("status") && f.canRun(user, "cat auth") },
		toDouble: func() bool {
			_, two := f.attempt(func(leader, _ string) bool {
				fence := f.snapshot().Fence.Record
				fence.State = cluster.FenceReleased
				done := submit("cordon", leader)
				f.write(overwrite(f.paths.Leader(), string(cluster.Encode(&fence))), remove(f.paths.Current()))
				return done
			})
			return two
		},
		toMove: move,
		toStop: func() bool {
			return submit("pause", "--hard") && f.pausedHard(func(string) { f.write(remove(f.paths.Current())) })
		},
	}
	if user == 0 { // package admission tries the same for the daemon's user
		tries[toRunCode] = func() bool { return f.policyRuns(move) }
	}
	return tries
}

// policyRuns reports whether any host runs a command from the policy record.
func (f *fleet) policyRuns(elect func() bool) bool {
	marker, was := filepath.Join(f.dir, "marker"), f.snapshot().Policy.Record
	f.write(overwrite(f.paths.Policy(), fmt.Sprintf(`{"v":1,"revision":%d,"type":"exec","command":["touch",%q],"exec":{"command":["touch",%[2]q]},"child":{"command":["touch",%[2]q]}}`, was.Revision+1, marker)))
	if !elect() {
		f.t.Error("no leader is elected under this policy")
	}
	f.write(overwrite(f.paths.Policy(), string(cluster.Encode(&was))))
	return exists(marker)
}

// asChild returns the attempts of the work's user, who is not the daemons' user.
func (f *fleet) asChild() attempts {
	outside := f.overHTTP("")
	signal := func(name string) bool {
		done := false
		for _, id := range []string{"a", "b"} {
			done = f.canRun(childUser, fmt.Sprint("kill -", name, " ", f.daemon(id)), fmt.Sprint("kill -", name, " ", f.daemons[id].Process.Pid)) || done
		}
		return done
	}
	return attempts{
		toRead: func() bool {
			if f.canRun(childUser, "cat auth", "cat tokens", "cat a.yaml", "./zkelectd status --config a.yaml",
				"./zkelectd status --zk "+f.servers[0]+" --root "+f.paths.Root) {
				f.t.Error("the child's user reads more than an unauthorized client")
			}
			return outside[toRead]()
		},
		toRunCode: func() bool {
			scripts := []string{"echo >>a.yaml", "echo >>auth", "echo >>tokens", "echo >>zkelectd", "mv a.yaml b.yaml", "echo >new"}
			leader, _ := f.pairing()
			return f.canRun(childUser, append(scripts, fmt.Sprintf("echo >/proc/%d/mem", f.daemon(leader)))...)
		},
		toDouble: func() bool {
			frozen := signal("STOP")
			_, two := f.attempt(func(_, other string) bool { _, err := f.run("move", "--to", other); return err == nil })
			return frozen || two
		},
		toMove: func() bool {
			moved, _ := f.attempt(func(leader, _ string) bool { return f.canRun(childUser, fmt.Sprint("kill -KILL ", f.child(leader))) })
			return moved
		},
		toStop: func() bool {
			return signal("KILL") || f.canRun(childUser, "./zkelectd pause --hard --zk "+f.servers[0]+" --root "+f.paths.Root) ||
				outside[toStop]()
		},
	}
}
