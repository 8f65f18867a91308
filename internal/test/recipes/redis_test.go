package recipes

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"zkelectd/internal/sys/boottime"
	"zkelectd/internal/test/zkserver"
)

func init() { recipes["redis"] = runRedis }

// redisFleet is three nodes with a Redis each. probes has when the Redis of each node accepted a write.
type redisFleet struct {
	*fleet
	mu     sync.Mutex
	probes []acceptedWrite
}

type acceptedWrite struct {
	sent, answered time.Duration
	node, term     string
}

func runRedis(t *testing.T) {
	f := &redisFleet{fleet: newFleet(t, zkserver.Options{})}
	nodes := []string{"n1", "n2", "n3"}
	for _, id := range nodes {
		f.start(id, f.command(id))
	}
	f.stopFirst(nodes...)
	stop := make(chan struct{})
	var probing sync.WaitGroup
	for _, id := range nodes {
		probing.Go(func() { f.probe(id, stop) })
	}
	leader := f.next("")
	f.redis(leader, "SET", "greeting", "hello")
	for round := range 3 {
		others := f.others(nodes, leader)
		for _, id := range others { // they follow the leader
			f.eventually(fmt.Sprintf("%s has the data of %s", id, leader), func() bool {
				return f.redis(id, "GET", "round") == f.redis(leader, "GET", "round") && f.redis(id, "GET", "greeting") == "hello"
			})
		}
		pid := f.pid(others[0])
		f.eventually(others[0]+" can lead", func() bool { // it may have to register again
			_, status := f.zkelectd("move", others[0], "--zk", f.zk.Addr(), "--root", "/redis", "--wait")
			return status == 0
		})
		f.leads("/redis", others[0])
		if f.pid(others[0]) != pid {
			t.Errorf("the Redis of %s was started again", others[0])
		}
		leader = others[0]
		f.redis(leader, "SET", "round", strconv.Itoa(round))
		for _, id := range f.others(nodes, leader) {
			f.eventually(id+" follows "+leader, func() bool { return f.redis(id, "GET", "round") == strconv.Itoa(round) })
		}
		f.signal(syscall.SIGKILL, leader, "daemon", "guard", "keeper")
		<-f.processes[leader].Done
		lost := leader
		leader = f.next(lost)
		if got := f.redis(leader, "GET", "round"); got != strconv.Itoa(round) {
			t.Errorf("%s leads, but does not have what %s had: %s", leader, lost, got)
		}
		f.start(lost, f.command(lost))
	}
	close(stop)
	probing.Wait()
	f.check()
	leader = f.followsAfterLoading(nodes, leader)
	f.leadsWithTheNewestData(nodes, leader)
}

// followsAfterLoading restarts a node that led and has much data: it is told to follow while it still loads them.
func (f *redisFleet) followsAfterLoading(nodes []string, leader string) string {
	f.redis(leader, "DEBUG", "POPULATE", "400000", "filler", "100")
	lost := leader
	for _, id := range f.others(nodes, leader) {
		f.eventually(id+" has the data", func() bool { return f.redis(id, "DBSIZE") == f.redis(leader, "DBSIZE") })
	}
	f.signal(syscall.SIGKILL, lost, "daemon", "guard", "keeper")
	<-f.processes[lost].Done
	leader = f.next(lost)
	f.start(lost, f.command(lost))
	f.redis(leader, "SET", "later", "yes")
	f.eventually(lost+" follows "+leader, func() bool { return f.redis(lost, "GET", "later") == "yes" })
	return leader
}

// leadsWithTheNewestData stops a node before the last write, then all, and starts that one first.
func (f *redisFleet) leadsWithTheNewestData(nodes []string, leader string) {
	others := f.others(nodes, leader)
	f.stop(others[0])
	before := f.redis(leader, "GET", "zkelectd:beat")
	f.eventually("the leader counts", func() bool { return f.redis(leader, "GET", "zkelectd:beat") != before })
	f.redis(leader, "SET", "late", "yes")
	f.eventually(others[1]+" has the last write", func() bool { return f.redis(others[1], "GET", "late") == "yes" })
	f.stop(others[1])
	f.stop(leader)
	for _, id := range []string{others[0], others[1], leader} {
		f.start(id, f.command(id))
		f.eventually("the Redis of "+id, func() bool { return f.redis(id, "PING") == "PONG" })
	}
	f.next("")
	for _, id := range nodes {
		f.eventually(id+" has the last write", func() bool { return f.redis(id, "GET", "late") == "yes" })
	}
}

// command returns the daemon of a node, with the files of the recipe.
func (f *redisFleet) command(id string) *exec.Cmd {
	scripts, err := filepath.Abs(filepath.Join(examples, "redis"))
	if err != nil {
		f.t.Fatal(err)
	}
	path := f.write(id+".yaml", f.example("redis/zkelectd.yaml", "n1", id, "deploy/examples/redis", scripts, "127.0.0.1:2181", f.zk.Addr()))
	cmd := exec.Command(binary, "run", "--create", "--config", path)
	cmd.Dir = f.dir
	return cmd
}

func (f *redisFleet) others(nodes []string, leader string) (all []string) {
	for _, id := range nodes {
		if id != leader {
			all = append(all, id)
		}
	}
	return all
}

// next waits until a node leads, other than one.
func (f *redisFleet) next(before string) (leader string) {
	f.t.Helper()
	f.eventually("another leader than "+before, func() bool {
		out, status := f.zkelectd("leader", "--zk", f.zk.Addr(), "--root", "/redis")
		leader = strings.TrimSpace(out)
		return status == 0 && leader != before
	})
	f.leads("/redis", leader)
	return leader
}

// redis runs a command on the Redis of a node, and returns its answer.
func (f *redisFleet) redis(id string, args ...string) string {
	out, _ := exec.Command("redis-cli", append([]string{"-p", "640" + id[1:]}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

// pid returns the process id of the Redis of a node.
func (f *redisFleet) pid(id string) string {
	for line := range strings.Lines(f.redis(id, "INFO", "server")) {
		if pid, ok := strings.CutPrefix(strings.TrimSpace(line), "process_id:"); ok {
			return pid
		}
	}
	return ""
}

// probe writes to the Redis of a node, and records each write that is accepted.
func (f *redisFleet) probe(id string, stop <-chan struct{}) {
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-tick.C:
		case <-stop:
			tick.Stop()
			return
		}
		sent := boottime.Now()
		term := f.redis(id, "EVAL", "redis.call('SET', 'last', ARGV[1]) return redis.call('GET', 'zkelectd:term')", "0", id)
		if _, err := strconv.Atoi(term); err == nil { // else it has refused the write
			w := acceptedWrite{sent, boottime.Now(), id, term}
			f.mu.Lock()
			f.probes = append(f.probes, w)
			f.mu.Unlock()
		}
	}
}

// check checks that no node has accepted writes between those that another one has accepted in one term.
func (f *redisFleet) check() {
	f.t.Helper()
	type reign struct{ node, term string }
	first, last := make(map[reign]time.Duration), make(map[reign]time.Duration)
	for _, w := range f.probes {
		r := reign{w.node, w.term}
		if _, ok := first[r]; !ok {
			first[r] = w.answered
		}
		last[r] = w.sent
	}
	for a, from := range first {
		for b := range first {
			if a.node != b.node && from < last[b] && first[b] < last[a] {
				f.t.Errorf("the nodes of %v and %v accepted writes at the same time", a, b)
			}
		}
	}
	f.t.Logf("%d writes were accepted, in %d terms", len(f.probes), len(first))
}
