package storetest_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/store/storetest"
	"zkelectd/internal/test/testhelper"
	"zkelectd/internal/test/zkserver"
	"zkelectd/internal/zk"
)

var server *zkserver.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = zkserver.Start(context.Background(), zkserver.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testhelper.RunMain(m, server.Stop)
}

const root = "/contract"

func model(t testing.TB) storetest.Env {
	s := storetest.NewServer()
	c := s.Connect()
	if _, err := c.Do(context.Background(), cluster.Op{Kind: cluster.OpCreate, Path: root}); err != nil {
		t.Fatal(err)
	}
	return storetest.Env{
		Connect: func(testing.TB) storetest.Conn { return s.Connect() },
		Group: func(c storetest.Conn, p cluster.Paths) storetest.Handle {
			return c.(*storetest.Session).Group(p)
		},
		Expire: func(_ testing.TB, c storetest.Conn) { s.Expire(c.SessionID()) },
		Root:   root,
	}
}

var roots atomic.Int32

func realServer(t testing.TB) storetest.Env {
	connect := func(t testing.TB) storetest.Conn {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		s, err := zk.Open(ctx, zk.Options{Servers: []string{server.Addr()}, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	e := storetest.Env{
		Connect: connect,
		Group: func(c storetest.Conn, p cluster.Paths) storetest.Handle {
			return c.(*zk.Session).Group(p)
		},
		Expire: func(t testing.TB, c storetest.Conn) {
			s := c.(*zk.Session)
			if err := zk.CloseSession(context.Background(), zk.SessionHandle{Servers: []string{server.Addr()}, Session: s.SessionID(), Password: s.Password()}); err != nil {
				t.Fatal(err)
			}
		},
		Root: fmt.Sprintf("%s%d", root, roots.Add(1)),
	}
	if _, err := connect(t).Do(context.Background(), cluster.Op{Kind: cluster.OpCreate, Path: e.Root, Data: []byte{}}); err != nil {
		t.Fatal(err)
	}
	return e
}

// losing returns a new server, which can be restarted without its data.
func losing(t testing.TB) (storetest.Env, func(testing.TB)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	own := zkserver.ForTest(t, zkserver.Options{})
	e := storetest.Env{Root: root, Connect: func(t testing.TB) storetest.Conn {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		s, err := zk.Open(ctx, zk.Options{Servers: []string{own.Addr()}, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			s.Close(ctx) // fails if the server has lost the session
		})
		return s
	}}
	if _, err := e.Connect(t).Do(ctx, cluster.Op{Kind: cluster.OpCreate, Path: root, Data: []byte{}}); err != nil {
		t.Fatal(err)
	}
	return e, func(t testing.TB) {
		if err := own.Wipe(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := own.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func losingModel(t testing.TB) (storetest.Env, func(testing.TB)) {
	s := storetest.NewServer()
	e := storetest.Env{Root: root, Connect: func(testing.TB) storetest.Conn { return s.Connect() }}
	if _, err := e.Connect(t).Do(context.Background(), cluster.Op{Kind: cluster.OpCreate, Path: root}); err != nil {
		t.Fatal(err)
	}
	return e, func(testing.TB) { s.Lose() }
}

func TestModelThatLosesItsData(t *testing.T)      { storetest.ContractOfLoss(t, losingModel) }
func TestRealServerThatLosesItsData(t *testing.T) { storetest.ContractOfLoss(t, losing) }

func TestModel(t *testing.T)           { storetest.Contract(t, model) }
func TestRealServer(t *testing.T)      { storetest.Contract(t, realServer) }
func TestModelIsLikeReal(t *testing.T) { storetest.RandomPrograms(t, model, realServer) }
