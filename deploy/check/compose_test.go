package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// project returns deploy/docker-compose.yml with further files as Compose v2 reads them, with all profiles.
func project(t *testing.T) *types.Project {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	files := []types.ConfigFile{{Filename: filepath.Join(dir, "docker-compose.yml")}}
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: dir, ConfigFiles: files, Environment: types.Mapping{},
	}, func(o *loader.Options) {
		o.SetProjectName("zkelectd", true)
		o.Profiles = []string{"*"}
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestComposeServicesAreHardened(t *testing.T) {
	p := project(t)
	if len(p.Services) != 9 {
		t.Errorf("there are %d services", len(p.Services))
	}
	for name, s := range p.Services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || s.Privileged || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s has more privileges than it needs", name)
		}
		if s.MemLimit == 0 || s.CPUS == 0 || s.PidsLimit == 0 {
			t.Errorf("%s lacks a limit: memory %d, processors %g, processes %d", name, s.MemLimit, s.CPUS, s.PidsLimit)
		}
		if uid, _, _ := strings.Cut(s.User, ":"); uid == "" || uid == "0" {
			t.Errorf("%s runs as %q", name, s.User)
		}
		if s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 {
			t.Errorf("%s has no health check", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s can be reached from other hosts, at port %s", name, port.Published)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s: %v, read-only %t", name, v.Source, err, v.ReadOnly)
			}
		}
	}
}

// Public images have an exact version. The image of zkelectd is built, not pulled.
func TestComposeImagesArePinned(t *testing.T) {
	for name, s := range project(t).Services {
		if s.Image == "zkelectd:dev" {
			continue
		}
		checkPinned(t, s.Image)
		if strings.HasPrefix(s.Image, "zkelectd") {
			t.Errorf("%s: there is no image %s to pull", name, s.Image)
		}
	}
}

// A site can be disconnected: a single network connects the sites.
func TestComposeSitesShareOneNetwork(t *testing.T) {
	sites := make(map[string]int)
	for name, s := range project(t).Services {
		site := s.Labels["zkelectd.site"]
		for network := range s.Networks {
			if network != "backbone" && network != site {
				t.Errorf("%s, of the site %q, is on the network %s", name, site, network)
			}
		}
		if _, joined := s.Networks["backbone"]; !joined {
			t.Errorf("%s is not connected to the other sites", name)
		}
		if env := s.Environment["ZKELECTD_NODE_SITE"]; env != nil && *env != site {
			t.Errorf("%s has node.site %s, but is in %s", name, *env, site)
		}
		sites[site]++
	}
	if sites["dc1"] != 3 || sites["dc2"] != 3 {
		t.Errorf("the sites are %v", sites)
	}
}

// The daemon accepts the settings of its service together with those of the image.
func TestComposeSettingsAreAccepted(t *testing.T) {
	nodes := 0
	for _, s := range project(t).Services {
		if s.Image != "zkelectd:dev" {
			continue
		}
		nodes++
		env := environment(s)
		if len(s.Command) < 4 || !slices.Equal(s.Command[:3], []string{"run", "--create", "--"}) {
			t.Fatalf("the command is %v", s.Command)
		}
		checkSettings(t, env, s.Command[2:]...)
		name := env["ZKELECTD_ZOOKEEPER_AUTH_FILE"]
		if env["ZKELECTD_ZOOKEEPER_ACL"] != "private" || env["CREDENTIALS_DIRECTORY"] != "/run/secrets" || len(s.Secrets) != 1 || s.Secrets[0].Source != name {
			t.Errorf("the tree is not private, or the secret %q is missing: %v", name, s.Secrets)
		}
		if test := s.HealthCheck.Test; len(test) != 4 || test[2] != "probe" || !probes.MatchString(test[3]) {
			t.Errorf("the health check is %v", test)
		}
	}
	if nodes != 4 {
		t.Errorf("there are %d nodes", nodes)
	}
}

// environment returns the environment of a member's container.
func environment(s types.ServiceConfig) map[string]string {
	env := map[string]string{"ZKELECTD_HTTP_LISTEN": "127.0.0.1:7980"} // of the image
	for name, value := range s.Environment {
		if value != nil {
			env[name] = *value
		}
	}
	return env
}

// The password is generated once, and other users cannot read it.
func TestComposeSecretIsGeneratedOnce(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile("../secret.sh")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "secret.sh")
	if err := os.WriteFile(copied, script, 0o700); err != nil {
		t.Fatal(err)
	}
	var first string
	for range 2 {
		if out, err := exec.Command("sh", copied).CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v\n%s", err, out)
		}
		data, err := os.ReadFile(filepath.Join(dir, "secret/zookeeper"))
		if err != nil || !password.Match(data) || first != "" && string(data) != first {
			t.Errorf("%v, %q after %q", err, data, first)
		}
		first = string(data)
	}
	info, err := os.Stat(filepath.Join(dir, "secret"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", err, info)
	}
	if file := project(t).Secrets["zookeeper"].File; filepath.Base(file) != "zookeeper" || filepath.Base(filepath.Dir(file)) != "secret" {
		t.Errorf("the file's secret is %s", file)
	}
}
