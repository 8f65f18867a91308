package zkserver

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, addrs ...string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(addrs, 4*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func TestServerKeepsDataAndStopRemovesIt(t *testing.T) {
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, s.Addr())
	if _, err := conn.Create("/kept", []byte("x"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if ok, _, err := connect(t, s.Addr()).Exists("/kept"); err != nil || !ok {
		t.Errorf("after the restart: exists %v, error %v", ok, err)
	}
	stats, err := s.Stats(t.Context())
	if err != nil || stats["zk_packets_received"] == 0 {
		t.Errorf("mntr: %v, %v", stats, err)
	}
	proc := s.process()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	<-proc.done
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("directory %s still exists: %v", s.dir, err)
	}
}

func TestEnsembleSurvivesItsLeader(t *testing.T) {
	e, err := StartEnsemble(t.Context(), 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	leader, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leader.Kill()
	var left []string
	for _, s := range e.Servers {
		if s != leader {
			left = append(left, s.Addr())
			if err := s.waitServing(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A server keeps serving for a moment until it notices that the quorum's leader is gone.
	c := connect(t, left...)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for {
		_, err := c.Create("/after", nil, 0, zk.WorldACL(zk.PermAll))
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("no write after the loss of the leader: %v", err)
		}
	}
}

func TestMissingSoftwareErrors(t *testing.T) {
	t.Setenv("ZOOKEEPER_HOME", t.TempDir())
	_, err := Start(t.Context(), Options{})
	if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "ZOOKEEPER_HOME") {
		t.Errorf("without ZooKeeper: %v", err)
	}
	t.Setenv("ZOOKEEPER_HOME", "")
	t.Setenv("PATH", "")
	t.Setenv("JAVA_HOME", "")
	if _, err := Start(t.Context(), Options{}); !errors.Is(err, ErrNoJava) {
		t.Errorf("without Java: %v", err)
	}
}
