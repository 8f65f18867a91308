package recipes

import (
	"os/exec"
	"testing"
)

func init() { recipes["nginx"] = runNginx }

func runNginx(t *testing.T) {
	p := newProxied(t, "nginx/zkelectd.yaml")
	argv := append(p.network.in("proxy"), "/usr/sbin/nginx", "-p", p.dir, "-e", "stderr", "-g", "daemon off; pid "+p.file("nginx.pid")+";",
		"-c", p.write("nginx.conf", p.example("nginx/nginx.conf")))
	p.start("nginx", exec.CommandContext(t.Context(), argv[0], argv[1:]...))
	p.failovers()
}
