package cli

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"zkelectd/internal/operator/status"
)

// A site is lost, and a person decides on the page that the other one leads. Another loss is answered by nobody, and what was promised
// happens.
func TestApprovalBetweenSites(t *testing.T) {
	t.Parallel()
	const token = "a-token-for-this-test"
	f := newFleet(t)
	addr := "127.0.0.1:" + closedPort(t)
	tokens := filepath.Join(f.dir, "tokens")
	called := filepath.Join(f.dir, "called")
	put(t, tokens, "night-shift:"+token+"\n")
	const policy = "policy: {sites: {dc1: 200}, failback: manual, confirm: 'member.site != previous.site', confirm_after: %s}\n"
	f.configure("a", "dc1", 9, fmt.Sprintf(policy, "1h"))
	f.start("a")
	f.until("a leads", leads("a"))
	f.configure("b", "dc2", 2, fmt.Sprintf("http: {listen: '%s', token_file: '%s'}\nhooks: {on_proposal: [sh, -c, 'cat >>%s']}\n"+policy, addr, tokens, called, "1h"))
	f.start("b")
	f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 })
	p := f.open(addr)
	p.shows("#leader .name", "a")

	f.crash("a")
	p.shows("#leader", "b (dc2) waits for approval: a is")
	p.shows("#requests", "proposed to elect b")
	out, err := f.run("status")
	if err != nil || !strings.Contains(out, "WAITS FOR APPROVAL: the election of b, by b") {
		t.Errorf("%v\n%s", err, out)
	}
	f.exits(statusError, "status", "--check")
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	for name, value := range map[string]string{"severity": "2", "approval_awaited": "1", "no_eligible_members": "0"} {
		_, line, _ := strings.Cut(string(metrics), "\nzkelectd_"+name+"{")
		if line, _, _ = strings.Cut(line, "\n"); err != nil || !strings.HasSuffix(line, "} "+value) {
			t.Errorf("%s{%s, want %s", name, line, value)
		}
	}
	f.exitsWith(statusRefused, "c is not proposed now, but b (dc2)", "approve", "c")
	f.eventually("the hook", func() bool {
		return strings.Contains(read(called), `"leader":"b","leader_site":"dc2","cause":"failure"`)
	})
	out, err = f.run("approve", "--reject", "--reason", "look first", "--wait")
	if err != nil || !strings.Contains(out, "b (dc2) is not elected") || strings.Contains(out, "leads in term") {
		t.Errorf("%v\n%s", err, out)
	}
	p.shows("#leader", "b (dc2) is not elected: rejected by")
	p.click("#operator")
	p.do(chromedp.SetValue(chromedp.CSS("dialog input"), token))
	p.click("dialog .primary")
	p.shows("#operator", "Operator: night-shift")
	p.click(".reasons [data-act^='approve']")
	p.shows("dialog .forecast", "b (dc2) takes over")
	approved := time.Now()
	p.click("dialog .primary")
	p.shows("#notice", "b (dc2) takes over")
	f.until("b leads", leads("b"))
	t.Logf("b leads %s after the approval", time.Since(approved))
	if fence := f.snapshot().Fence.Record; fence.Wait != "" { // a, which was silent, has been ended before
		t.Errorf("b had to wait %s", fence.Wait)
	}
	f.logged("b", "the leader is silent: its work is over, and a person must decide who leads next")
	p.shows("#history", "approved by night-shift")
	p.shows("#requests", "None: policy alone decides.")
	if n := strings.Count(read(called), "\n"); n != 1 {
		t.Errorf("on_proposal ran %d times", n)
	}
	p.checkConsole()
	p.do(chromedp.Navigate("about:blank")) // its daemon is about to be lost

	f.configure("c", "dc1", 1, fmt.Sprintf(policy, "3s"))
	f.start("c")
	f.until("c has joined", func(g status.Group) bool { return len(g.Members) == 2 })
	if out, err := f.run("policy", "--apply", f.file("c")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f.crash("b")
	f.until("c is proposed", func(g status.Group) bool {
		return len(g.Requests) == 1 && g.Requests[0].Kind == "proposal" && g.Requests[0].Target == "c"
	})
	if g := f.until("c leads without an answer", leads("c")); !strings.HasSuffix(g.Reason, "; approved by policy.confirm_after") {
		t.Error(g.Reason)
	}
	f.checkInvariants()
}
