package cli

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"zkelectd/internal/operator/status"
)

// put sends a value to a daemon, and returns the status of the answer.
func (f *fleet) put(id, path, value string) (code int, body string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPut, "http://"+id+path, strings.NewReader(value))
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: f.transport(id)}).Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// publishes waits until the leader publishes a value.
func (f *fleet) publishes(id, value string) status.Group {
	f.t.Helper()
	return f.until(id+" publishes "+value, func(g status.Group) bool { return leads(id)(g) && g.Value == value })
}

// What the leader's work publishes may change in its term, by sd_notify and by a program on the host: current is
// written once a second at most, leadership goes on, and everyone who follows the group sees the last value. The next
// leader has its own.
func TestTheValueOfTheWorkChanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for i, id := range []string{"a", "b"} {
		f.configure(id, "dc1", 100-i, fmt.Sprintf("http: {listen: 'unix:%s'}\nzookeeper: {session_timeout: 2s}\n"+
			"child: {command: [ledger-child], env: {LEDGER: LEDGERFILE, MODE: values}, stop_timeout: 400ms, ready: {notify: true}}\n", f.socket(id)))
		f.start(id)
		f.answers(id, "/readyz", 200)
	}
	first := f.until("a leads", leads("a"))
	stream := f.events("b")
	watch := f.startCommand("watch", exec.Command("zkelectd", "status", "--watch", "--zk", f.servers[0], "--root", f.paths.Root))
	last := fmt.Sprintf("a-%d", manyValues)
	f.publishes("a", last)
	_, stat, err := f.session.Get(f.t.Context(), f.paths.Current(), false)
	if err != nil {
		t.Fatal(err)
	}
	record := f.snapshot().Current.Record
	if seconds := int32(stat.Time.Sub(record.Time)/time.Second) + 2; stat.Version < 2 || stat.Version-1 > seconds {
		t.Errorf("current was written %d times after READY, in %d s", stat.Version-1, seconds)
	}
	f.hasEvent(stream, `"value":"`+last+`"`)
	f.succeedsWith(`"value": "`+last+`"`, "leader", "-o", "json")
	if _, body := f.ask("a", "/leader"); !strings.Contains(body, `"value":"`+last+`"`) {
		t.Errorf("/leader: %s", body)
	}

	const url = "tcp://10.0.0.7:7000/?x=é"
	if code, body := f.put("a", fmt.Sprintf("/v1/value?term=%d", first.Term), url); code != http.StatusAccepted {
		t.Errorf("%d: %s", code, body)
	}
	f.publishes("a", url)
	f.hasEvent(stream, `"value":"`+url+`"`)
	f.eventually("status --watch shows it", func() bool { return strings.Contains(watch.Output(), "Value    "+url+"\n") })
	for path, id := range map[string]string{"/v1/value": "b", fmt.Sprintf("/v1/value?term=%d", first.Term-1): "a"} {
		if code, body := f.put(id, path, "x"); code != http.StatusConflict {
			t.Errorf("%s%s: %d: %s", id, path, code, body)
		}
	}

	f.succeedsWith("", "move", "--to", "b")
	f.publishes("b", fmt.Sprintf("b-%d", manyValues))
	f.daemons["watch"].Process.Kill()
	f.exit("watch")
	delete(f.daemons, "watch")
	terms := f.checkInvariants()
	if len(terms) != 2 {
		t.Errorf("tenures: %+v", terms)
	}
}
