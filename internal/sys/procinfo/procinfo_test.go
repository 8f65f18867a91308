package procinfo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/test/testhelper"
)

// The state of a process is parsed correctly whatever its name is, or not at all.
func TestParseStat(t *testing.T) {
	line := func(name, state, started string) string {
		return "7 (" + name + ") " + state + strings.Repeat(" 3", 18) + " " + started + " 5 6\n"
	}
	want := Stat{State: 'S', Parent: 3, MajorFaults: 3, Ticks: 6, Started: 99}
	for _, name := range []string{"sh", "a b", ") Z 1 1", "(", ""} {
		if s, err := parseStat([]byte(line(name, "S", "99"))); err != nil || s != want {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
	}
	for state, ended := range map[string]bool{"R": false, "S": false, "D": false, "T": false, "t": false, "I": false, "Z": true, "X": true} {
		if s, err := parseStat([]byte(line("sh", state, "99"))); err != nil || s.Ended() != ended {
			t.Errorf("%s: %+v, %v", state, s, err)
		}
	}
	for _, bad := range []string{"", "7", "7 (sh)", "7 (sh) S" + strings.Repeat(" 3", 18), line("sh", "S", "x"), "7 (sh) S x" + strings.Repeat(" 3", 17) + " 99 5 6\n"} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
	if s, err := parseStat([]byte("7 (sh) S" + strings.Repeat(" 3", 18) + " 99")); err != nil || s != want {
		t.Errorf("the shortest: %+v, %v", s, err)
	}
	const noPid = 1 << 30
	if _, err := ReadStat(noPid); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), fmt.Sprint(noPid)) {
		t.Errorf("no such process: %v", err)
	}
}

func TestStartTime(t *testing.T) {
	own, err := ReadStat(os.Getpid())
	if err != nil || own.Parent != os.Getppid() {
		t.Errorf("%+v, %v", own, err)
	}
	cmd := exec.Command("cat")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if started, err := StartTime(pid); err != nil || started < own.Started {
		t.Errorf("%d, %v", started, err)
	}
	input.Close()
	testhelper.Eventually(t, 20*time.Second, "a zombie has no start time", func() bool {
		_, err := StartTime(pid)
		return errors.Is(err, os.ErrProcessDone)
	})
	cmd.Wait()
	if _, err := StartTime(pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
