package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/store"
)

// The commands of the example in docs/groups.md work, here with ten services: each host leads its own, and one that is drained
// leads none.
func TestGroupsExample(t *testing.T) {
	t.Parallel()
	const root, services = "/forty", 10
	script := blocks(t, "../../docs/groups.md", "Example: forty services on five hosts")
	f := newFleetAt(t, root+"/svc-00")
	shell := func(host, text string) {
		t.Helper()
		here := strings.NewReplacer("seq 0 39", fmt.Sprintf("seq 0 %d", services-1), "zk1:2181", f.servers[0], "root: /zkelectd", "root: "+root,
			"/etc/zkelectd.yaml", f.file(host), "/etc/zkelectd.d", filepath.Join(f.dir, host+".d"), "id: n1", "id: "+host,
			", auth: {file: /etc/zkelectd/zookeeper.auth}, acl: private", "",
			"failback: 30s", "failback: 100ms", "chgrp zkelectd", ":", "systemctl", ":") // neither user nor systemd
		cmd := exec.Command("sh", "-euc", here.Replace(text))
		cmd.Dir = f.dir
		cmd.Env = append(os.Environ(), "HOME="+f.dir, testHostFile+"="+f.file("n1"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, cmd.Args, out)
		}
	}
	shell("", script[0])
	for i := range 5 {
		host := fmt.Sprintf("n%d", i+1)
		if err := os.Mkdir(filepath.Join(f.dir, host+".d"), 0o700); err != nil {
			t.Fatal(err)
		}
		shell(host, script[1])
		f.startCommand(host, exec.Command("zkelectd", "run", "--config", f.file(host)))
	}
	ledBy := func(what string, leader func(i int) int) {
		t.Helper()
		for i := range services {
			f.untilAt(fmt.Sprintf("%s/svc-%02d", root, i), what, leads(fmt.Sprintf("n%d", leader(i)+1)))
		}
	}
	home := func(i int) int { return i % 5 }
	ledBy("each service is led by its home", home)
	shell("", script[2])
	ledBy("those of n3 are led by their second homes", func(i int) int {
		if home(i) != 2 {
			return home(i)
		}
		return (i + 1 + i/5%4) % 5
	})
	shell("", script[3])
	ledBy("each service is led by its home again", home)
	shell("n1", script[4])
}

// untilAt is until for the group at root.
func (f *fleet) untilAt(root, what string, ok func(status.Group) bool) {
	f.t.Helper()
	var g status.Group
	f.eventually(what, func() bool {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		snap, err := store.ReadAll(ctx, f.session, cluster.Paths{Root: root}, false)
		g = status.Of(cluster.NameOf(root), root, snap)
		return err == nil && ok(g)
	}, func() string { return g.Table() })
}
