package recipes

import "testing"

func init() { recipes["nginx"] = runNginx }

func runNginx(t *testing.T) {
	p := newProxied(t, "nginx/zkelectd.yaml")
	p.start("nginx", p.network.command("proxy", "/usr/sbin/nginx", "-p", p.dir, "-e", "stderr",
		"-g", "daemon off; pid "+p.file("nginx.pid")+";", "-c", p.write("nginx.conf", p.example("nginx/nginx.conf"))))
	p.failovers()
}
