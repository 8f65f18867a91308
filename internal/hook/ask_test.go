package hook

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const asked = "policy.exec.command"

func TestAskReturnsWhatIsPrinted(t *testing.T) {
	out, err := Ask(t.Context(), asked, shell("cat; echo $A; echo noise >&2"), []string{"A=b", "PATH=" + os.Getenv("PATH")}, []byte("in\n"), time.Minute)
	if err != nil || string(out) != "in\nb\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := Ask(t.Context(), asked, nil, nil, nil, time.Minute); err != nil || len(out) != 0 {
		t.Errorf("no program: %q, %v", out, err)
	}
}

func TestAskSaysWhatWentWrong(t *testing.T) {
	for want, argv := range map[string][]string{
		"policy.exec.command sh failed: exit status 3: no disk": shell("echo '[\"a\"]'; echo no disk >&2; exit 3"),
		"policy.exec.command sh failed: exit status 4":          shell("echo answer; exit 4"),
		"policy.exec.command sh failed: signal: killed":         shell("kill -9 $$"),
		"/no/such/program": {"/no/such/program"},
	} {
		out, err := Ask(t.Context(), asked, argv, os.Environ(), nil, time.Minute)
		if err == nil || !strings.Contains(err.Error(), want) || len(out) != 0 {
			t.Errorf("%v lacks %q; answered %q", err, want, out)
		}
		if err != nil && strings.Contains(err.Error(), "answer") {
			t.Errorf("the answer is in the error: %v", err)
		}
	}
}

func TestALongAnswerIsBounded(t *testing.T) {
	out, err := Ask(t.Context(), asked, shell("head -c 3000000 /dev/zero | tr '\\0' x"), os.Environ(), nil, time.Minute)
	if err != nil || len(out) != maxAnswer {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	_, err = Ask(t.Context(), asked, shell("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1"), os.Environ(), nil, time.Minute)
	if err == nil || len(err.Error()) > 2*maxOutput {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

func dead(t *testing.T, pid string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(20 * time.Second); ; <-tick.C {
		data, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(data), ") Z ") {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("what the program has started survives it")
		}
	}
}

func TestAskKillsTheWholeGroupInTheEnd(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"too slow": {"trap '' TERM; echo '[]'; wait", "policy.exec.command sh failed: not done within 500ms"},
		"done":     {"exit 0", ""},
		"failed":   {"exit 1", "exit status 1"},
	} {
		file := filepath.Join(t.TempDir(), "pid")
		started := "sh -c 'echo $$ >" + file + "; exec sleep 1000' & while [ ! -s " + file + " ]; do :; done; "
		limit := time.Minute
		if name == "too slow" {
			limit = 500 * time.Millisecond
		}
		began := time.Now()
		_, err := Ask(t.Context(), asked, shell(started+c.script), os.Environ(), nil, limit)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
		if c.want == "" && err != nil && !strings.Contains(err.Error(), "WaitDelay") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		dead(t, read(file))
	}
}

func TestAskIsCutShortWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, err := Ask(ctx, asked, shell("sleep 1000"), os.Environ(), nil, time.Minute)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "cut short") || len(out) != 0 {
		t.Errorf("%q, %v", out, err)
	}
}
