package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// passwordHash is the hash of "open sesame", with a realistic cost.
const passwordHash = "$2a$10$8DnSyfNDYlrCEd92vV4d5ek.fGYOe/zynu9bi4xS6I9h28CmL0OaG"

// statusFor sends a request with a password, and returns the status.
func statusFor(t *testing.T, c *http.Client, url, password string) int {
	req, _ := http.NewRequest(http.MethodGet, url, nil)
	req.SetBasicAuth("prom", password)
	resp, err := c.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// The toolkit checks passwords one after another. Many wrong ones must not block valid ones for that time.
func TestWrongPasswordsDoNotBlockValidOnes(t *testing.T) {
	e := newTLSServer(t)
	url := "https://" + e.serve("basic_auth_users: {prom: "+passwordHash+"}\n", maxConns) + "/leader"
	const wrong = 30
	clients := make([]*http.Client, wrong)
	for i := range clients {
		clients[i] = e.httpClient()
	}
	var wg sync.WaitGroup
	codes := make(chan int, wrong)
	for i, c := range clients {
		wg.Go(func() { codes <- statusFor(t, c, url, fmt.Sprintf("wrong %d", i)) })
	}
	wg.Wait()
	close(codes)
	count := make(map[int]int)
	for code := range codes {
		count[code]++
	}
	if count[http.StatusServiceUnavailable] < wrong/4 || count[http.StatusUnauthorized] < maxClientPasswordChecks ||
		count[http.StatusServiceUnavailable]+count[http.StatusUnauthorized] != wrong {
		t.Errorf("%d wrong passwords: %v", wrong, count)
	}
	if code := statusFor(t, e.httpClient(), url, "open sesame"); code != http.StatusOK {
		t.Errorf("the right one: %d", code)
	}
}

func TestPasswordChecksAreLimitedPerClient(t *testing.T) {
	p := newPasswordLimiter()
	checking, verdict := make(chan struct{}), make(chan struct{})
	answering, answer := make(chan struct{}), make(chan struct{})
	api := p.noteVerified(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			answering <- struct{}{}
			<-answer
		}
	}))
	front := p.limitChecks(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // in place of the toolkit's handler
		switch _, password, ok := r.BasicAuth(); {
		case !ok:
			w.WriteHeader(http.StatusUnauthorized)
		case password == "right":
			api.ServeHTTP(w, r)
		default:
			checking <- struct{}{}
			<-verdict
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	ask := func(from, path, password string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr = from + ":1234"
		if password != "" {
			r.SetBasicAuth("prom", password)
		}
		w := httptest.NewRecorder()
		front.ServeHTTP(w, r)
		return w.Code
	}
	is := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	var wg sync.WaitGroup
	for range maxClientPasswordChecks { // a response in progress is not a check
		wg.Go(func() { is("a slow answer", ask("192.0.2.1", "/slow", "right"), http.StatusOK) })
		<-answering
	}
	for range maxClientPasswordChecks {
		wg.Go(func() { is("a wrong one", ask("192.0.2.1", "/", "wrong"), http.StatusUnauthorized) })
		<-checking
	}
	is("one too many", ask("192.0.2.1", "/", "wrong"), http.StatusServiceUnavailable)
	is("one that was right before", ask("192.0.2.1", "/", "right"), http.StatusOK)
	is("none", ask("192.0.2.1", "/", ""), http.StatusUnauthorized)
	is("another client's first", ask("192.0.2.2", "/", "right"), http.StatusOK)
	close(verdict)
	close(answer)
	wg.Wait()
	is("after that", ask("192.0.2.1", "/slower", "right"), http.StatusOK)
}
