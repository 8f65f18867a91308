package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// healthServer answers each check with the next letter, g for good and b for bad, then ends the watch.
func healthServer(t *testing.T, answers string, end context.CancelFunc) string {
	var next atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i := int(next.Add(1)) - 1
		if i >= len(answers) {
			end()
			return
		}
		if answers[i] == 'b' {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestWatchAppliesRiseAndFall(t *testing.T) {
	for name, c := range map[string]struct {
		rise, fall   int
		firstDecides bool
		answers      string
		changes      string
	}{
		"good from the start":              {2, 3, false, "gggg", ""},
		"falls":                            {2, 3, false, "bbb", "b"},
		"rises":                            {2, 3, false, "bbbgg", "bg"},
		"fall begins anew":                 {2, 3, false, "bbbggbb", "bg"},
		"the first decides, good":          {2, 3, true, "gg", "g"},
		"the first decides, bad":           {2, 3, true, "bb", "b"},
		"the first decides, then it rises": {2, 3, true, "bgbgg", "bg"},
		"the first decides, then it falls": {2, 3, true, "gbbb", "gb"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		var changes strings.Builder
		w := Watch{Target: Target{HTTP: healthServer(t, c.answers, cancel)}, Section: "health", Interval: time.Millisecond, Timeout: 10 * time.Second, Rise: c.rise, Fall: c.fall, FirstDecides: c.firstDecides}
		w.Run(ctx, nil, func(err error) {
			switch {
			case err == nil:
				changes.WriteByte('g')
			case strings.Contains(err.Error(), "answered 500"):
				changes.WriteByte('b')
			default:
				fmt.Fprintf(&changes, "(%v)", err)
			}
		})
		cancel()
		if changes.String() != c.changes {
			t.Errorf("%s: %q changed to %q, want %q", name, c.answers, changes.String(), c.changes)
		}
	}
}

func watchOnce(t *testing.T, target Target, timeout time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := fmt.Errorf("it never changed")
	w := Watch{Target: target, Section: "health", Interval: time.Hour, Timeout: timeout, Rise: 1, Fall: 1, FirstDecides: true}
	w.Run(ctx, append(os.Environ(), "WORD=hello"), func(e error) {
		err = e
		cancel()
	})
	return err
}

func TestWatchChecksEveryKindOfTarget(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			w.WriteHeader(http.StatusNoContent)
		case "/redirect":
			http.Redirect(w, r, "/good", http.StatusFound)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	for name, c := range map[string]struct {
		target Target
		want   string
	}{
		"exec":           {Target{Exec: []string{"sh", "-c", `test "$WORD" = hello`}}, ""},
		"exec fails":     {Target{Exec: []string{"sh", "-c", "echo no disk; exit 4"}}, "health.exec sh: exit status 4: no disk"},
		"no program":     {Target{Exec: []string{"/no/such/program"}}, "health.exec /no/such/program: "},
		"http":           {Target{HTTP: server.URL + "/good"}, ""},
		"http fails":     {Target{HTTP: server.URL + "/bad"}, "health.http " + server.URL + "/bad: answered 503"},
		"http redirects": {Target{HTTP: server.URL + "/redirect"}, "answered 302"},
		"tcp":            {Target{TCP: strings.TrimPrefix(server.URL, "http://")}, ""},
		"tcp fails":      {Target{TCP: "127.0.0.1:1"}, "health.tcp 127.0.0.1:1: "},
	} {
		if c.target.Empty() {
			t.Errorf("%s: nothing to check", name)
		}
		err := watchOnce(t, c.target, 10*time.Second)
		if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if !(Target{}).Empty() {
		t.Error("the empty target is not empty")
	}
}

func TestCheckThatTakesTooLongFails(t *testing.T) {
	requested := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requested <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	for want, target := range map[string]Target{
		"health.exec sh: no answer in time": {Exec: []string{"sh", "-c", "sleep 1000 & wait"}},
		"health.http " + server.URL:         {HTTP: server.URL},
	} {
		err := watchOnce(t, target, 300*time.Millisecond)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "no answer in time") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if len(requested) != 1 {
		t.Error("the server received no request")
	}
}

func TestWatchEndsDuringACheck(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	w := Watch{Target: Target{HTTP: server.URL}, Section: "health", Interval: time.Millisecond, Timeout: time.Hour, Rise: 1, Fall: 1, FirstDecides: true}
	w.Run(ctx, nil, func(err error) { t.Errorf("the end was reported as %v", err) })
}

func TestScore(t *testing.T) {
	prints := func(text string) []string { return []string{"printf", "%b", text} }
	for name, c := range map[string]struct {
		argv   []string
		want   float64
		reason string
	}{
		"exec":            {prints(`3`), 3, ""},
		"first word":      {prints(`\n\t-2.5e1 of 7\n9\n`), -25, ""},
		"environment":     {[]string{"sh", "-c", "echo $SCORE"}, 17, ""},
		"not a number":    {prints(`apples`), 0, `score.exec printf: "apples" is not a number`},
		"too large":       {prints(`1e301`), 0, "is not a number"},
		"exec fails":      {[]string{"sh", "-c", "echo 5; exit 2"}, 0, "score.exec sh: exit status 2"},
		"no program":      {[]string{"/no/such/program"}, 0, "/no/such/program"},
		"much output":     {[]string{"sh", "-c", "echo 8; head -c 1000000 /dev/zero"}, 8, ""},
		"2^53":            {prints(`9007199254740992`), 1 << 53, ""},
		"2^53 + 1":        {prints(`9007199254740993`), 0, `score.exec printf: "9007199254740993" would be rounded: scores are exact up to 9007199254740992`},
		"a fraction":      {prints(`+9007199254740993.0 bytes`), 0, "would be rounded"},
		"leading zeros":   {prints(`000000000000000000000000016777216`), 1 << 24, ""},
		"an exponent":     {prints(`1e20`), 1e20, ""},
		"too many digits": {[]string{"sh", "-c", "head -c 10000 /dev/zero | tr '\\0' 9"}, 0, "is not a number"},
	} {
		got, err := Score(t.Context(), c.argv, append(os.Environ(), "SCORE=17"))
		if got != c.want || (c.reason == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.reason)) {
			t.Errorf("%s: %v, %v; want %v, %q", name, got, err, c.want, c.reason)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

func TestScoreThatTakesTooLong(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Score(ctx, []string{"sh", "-c", "sleep 1000 & wait"}, os.Environ()); err == nil || err.Error() != "score.exec sh: no answer in time" {
		t.Errorf("%v", err)
	}
}

// The result of a probe is published in ZooKeeper and logged: it has no password.
func TestSecretsInURLsAreNotShown(t *testing.T) {
	t.Parallel()
	target := Target{HTTP: "http://user:marker@127.0.0.1:1/health?key=marker"}
	if err := target.check(t.Context(), "health", nil); err == nil || strings.Contains(err.Error(), "marker") || !strings.Contains(err.Error(), "health.http http://127.0.0.1:1/health: ") {
		t.Errorf("%v", err)
	}
	if err := Request(t.Context(), http.MethodGet, target.HTTP, nil); err == nil || strings.Contains(err.Error(), "marker") {
		t.Errorf("%v", err)
	}
}
