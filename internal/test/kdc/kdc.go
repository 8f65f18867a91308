// Package kdc starts a real KDC of MIT Kerberos on a loopback port for tests. It dies with the process that started it.
package kdc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"zkelectd/internal/test/zkserver"
)

// Realm is that of each KDC.
const Realm = "EXAMPLE.ORG"

// KDC is a key distribution center.
type KDC struct {
	// Conf is the krb5.conf of its clients.
	Conf string

	dir, addr string
	process   *exec.Cmd
	ended     chan struct{}
}

// Start creates a realm below dir and starts its KDC. The caller must stop it.
func Start(ctx context.Context, dir string) (*KDC, error) {
	ports, err := zkserver.FreePorts(1)
	if err != nil {
		return nil, err
	}
	k := &KDC{dir: dir, addr: fmt.Sprintf("127.0.0.1:%d", ports[0]), Conf: filepath.Join(dir, "krb5.conf")}
	for name, text := range map[string]string{
		"krb5.conf": "includedir " + filepath.Join(dir, "conf.d") + "\n[libdefaults]\n default_realm = " + Realm +
			"\n dns_lookup_kdc = false\n" +
			"[realms]\n " + Realm + " = {\n  kdc = " + k.addr + "\n }\n",
		"kdc.conf": fmt.Sprintf("[realms]\n %s = {\n  database_name = %[2]s/principal\n  key_stash_file = "+
			"%[2]s/stash\n  acl_file = %[2]s/acl\n"+
			"  kdc_listen = %[3]s\n  kdc_tcp_listen = %[3]s\n }\n[logging]\n kdc = FILE:%[2]s/kdc.log\n", Realm, dir, k.addr),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "conf.d"), 0o700); err != nil { // as Red Hat's configuration has it
		return nil, err
	}
	if err := k.run(ctx, "kdb5_util", "create", "-r", Realm, "-s", "-P", "master"); err != nil {
		return nil, err
	}
	return k, k.Restart(ctx, 0)
}

// Add creates a principal with new keys in a keytab, or replaces its keys. Its tickets are valid for life.
func (k *KDC) Add(ctx context.Context, principal, keytab string, life time.Duration) error {
	if err := os.RemoveAll(keytab); err != nil {
		return err
	}
	_ = k.run(ctx, "kadmin.local", "-r", Realm, "addprinc", "-randkey", principal) // it may exist
	err := k.run(ctx, "kadmin.local", "-r", Realm, "modprinc", "-maxlife",
		fmt.Sprintf("%d seconds", int(life.Seconds())), "+requires_preauth", principal)
	return errors.Join(err, k.run(ctx, "kadmin.local", "-r", Realm, "ktadd", "-k", keytab, principal))
}

// Issued returns how many tickets for services a principal has got.
func (k *KDC) Issued(principal string) (n int) {
	log, err := os.ReadFile(filepath.Join(k.dir, "kdc.log"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "TGS_REQ") && strings.Contains(line, "ISSUE: ") &&
			strings.Contains(line, " "+principal+"@") {
			n++
		}
	}
	return n
}

// Login writes a credential cache, as kinit does for a person.
func (k *KDC) Login(ctx context.Context, principal, keytab, cache string) error {
	return k.run(ctx, "kinit", "-c", cache, "-k", "-t", keytab, principal)
}

// run runs one of Kerberos's programs.
func (k *KDC) run(ctx context.Context, name string, args ...string) error {
	cmd := k.command(ctx, name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s (scripts/install-kerberos.sh installs it)", name, err, out)
	}
	return nil
}

func (k *KDC) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := name
	if at := filepath.Join("/usr/sbin", name); !filepath.IsAbs(name) && exists(at) { // often not in the PATH
		path = at
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = k.Env()
	return cmd
}

// Env returns the environment of Kerberos's programs.
func (k *KDC) Env() []string {
	return append(os.Environ(), "KRB5_CONFIG="+k.Conf, "KRB5_KDC_PROFILE="+filepath.Join(k.dir, "kdc.conf"), "PATH="+
		os.Getenv("PATH")+":/usr/sbin")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Restart starts the KDC, with a clock that is ahead of this machine's, and waits until it answers.
func (k *KDC) Restart(ctx context.Context, ahead time.Duration) error {
	k.Stop()
	cmd := k.command(context.WithoutCancel(ctx), "krb5kdc", "-n", "-r", Realm)
	if ahead != 0 {
		cmd = k.command(context.WithoutCancel(ctx), "faketime", "-f", fmt.Sprintf("+%ds", int(ahead.Seconds())),
			cmd.Path, "-n", "-r", Realm)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() { // ends with the KDC
		defer close(ended)
		runtime.LockOSThread() // Linux sends Pdeathsig when the thread that forked ends
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("krb5kdc: %w (scripts/install-kerberos.sh installs it)", err)
	}
	k.process, k.ended = cmd, ended
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.Dial("tcp", k.addr); err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-ended:
			log, _ := os.ReadFile(filepath.Join(k.dir, "kdc.log"))
			return fmt.Errorf("krb5kdc has ended: %s", log)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stop kills the KDC. Restart starts it again.
func (k *KDC) Stop() {
	if k.process != nil {
		syscall.Kill(-k.process.Process.Pid, syscall.SIGKILL)
		<-k.ended
		k.process = nil
	}
}
