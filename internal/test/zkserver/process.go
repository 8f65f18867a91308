package zkserver

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a Java process that the kernel kills when this process ends.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has been reaped
}

func startJava(dir, log, config string, opt Options) (*process, error) {
	java, err := javaCommand(os.Getenv)
	if err != nil {
		return nil, err
	}
	path, err := classpath(os.Getenv)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	force := "no"
	if opt.Sync {
		force = "yes"
	}
	// With UsePerfData the killed server would leave a file in /tmp.
	args := append([]string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.forceSync=" + force,
		"-Dzookeeper.jmx.log4j.disable=true",
	}, opt.Java...)
	cmd := exec.Command(java, append(args, "-cp", path, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() { // ends when the server has ended
		// Linux sends Pdeathsig when the thread that forked ends, so that thread must live as long as the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
		close(p.done)
	}()
	return p, <-started
}

func (p *process) signal(sig syscall.Signal) { syscall.Kill(-p.cmd.Process.Pid, sig) }

func (p *process) kill() {
	select {
	case <-p.done:
		return
	default:
	}
	p.signal(syscall.SIGKILL)
	<-p.done
}

// pause returns when all threads have stopped: on a busy machine some of them go on after the signal, and answer.
func (p *process) pause() {
	p.signal(syscall.SIGSTOP)
	for unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

func (p *process) resume() { p.signal(syscall.SIGCONT) }
