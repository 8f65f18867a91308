package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zkelectd/internal/test/faultproxy"
)

var secret, older, foreign = bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 32)

// echo is a daemon, n2, that answers what it was asked.
type echo struct {
	http  *httptest.Server
	mu    sync.Mutex
	seen  []string
	conns map[net.Conn]bool
}

// serve starts a daemon whose groups have the secrets.
func serve(t *testing.T, secrets map[string][][]byte) *echo {
	t.Helper()
	e := &echo{conns: make(map[net.Conn]bool)}
	e.http = httptest.NewUnstartedServer(NewHandler(ServerOptions{
		Node:    "n2",
		Secrets: func(group string) [][]byte { return secrets[group] },
		Answer: func(kind Kind, from, group string, body []byte) ([]byte, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			text := fmt.Sprintf("%s %s %s %s", kind, from, group, body)
			e.seen = append(e.seen, text)
			if string(body) == "fail" {
				return nil, errors.New("not now")
			}
			return []byte(text), nil
		},
	}))
	e.http.Config.ConnState = func(c net.Conn, s http.ConnState) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if s == http.StateNew {
			e.conns[c] = true
		}
	}
	e.http.Start()
	t.Cleanup(e.http.Close)
	return e
}

func (e *echo) address() string { return e.http.Listener.Addr().String() }

func (e *echo) answered() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

func newClient(t *testing.T) *Client {
	t.Helper()
	c := NewClient("n1")
	t.Cleanup(c.Close)
	return c
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestAllGroupsInOneRequest(t *testing.T) {
	e := serve(t, map[string][][]byte{"/a": {secret}, "/b": {foreign}})
	c := newClient(t)
	for range 3 {
		got, err := c.Ask(soon(t), Round, "n2", e.address(), []Message{
			{"/a", []byte("one"), [][]byte{secret}}, {"/b", []byte("two"), [][]byte{foreign}}, {"/c", []byte("three"), [][]byte{secret}}, {"/a", []byte("fail"), [][]byte{secret}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if string(got[0].Body) != "round n1 /a one" || string(got[1].Body) != "round n1 /b two" {
			t.Errorf("answers %q, %q: %v, %v", got[0].Body, got[1].Body, got[0].Err, got[1].Err)
		}
		for i, want := range map[int]string{2: "no such group", 3: "not now"} {
			if got[i].Body != nil || got[i].Err == nil || !strings.Contains(got[i].Err.Error(), want) {
				t.Errorf("answer %d: %q, %v", i, got[i].Body, got[i].Err)
			}
		}
	}
	if len(e.conns) != 1 {
		t.Errorf("%d connections for three requests", len(e.conns))
	}
}

// After a rotation the members read the new keys at different times.
func TestKeysAreRotated(t *testing.T) {
	newest := bytes.Repeat([]byte{4}, 32)
	for name, c := range map[string]struct {
		mine, theirs [][]byte
		ok           bool
	}{
		"the same":              {[][]byte{secret, older}, [][]byte{secret, older}, true},
		"this one is newer":     {[][]byte{newest, secret}, [][]byte{secret, older}, true},
		"the other is newer":    {[][]byte{secret, older}, [][]byte{newest, secret}, true},
		"two rotations between": {[][]byte{newest, foreign}, [][]byte{secret, older}, false},
		"no key":                {nil, [][]byte{secret}, false},
		"the other has none":    {[][]byte{secret}, nil, false},
	} {
		e := serve(t, map[string][][]byte{"/a": c.theirs})
		got, err := newClient(t).Ask(soon(t), Probe, "n2", e.address(), []Message{{"/a", []byte("x"), c.mine}})
		if err != nil || (got[0].Err == nil) != c.ok || (len(e.answered()) > 0) != c.ok {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// capture returns what a client sends.
func capture(t *testing.T, kind Kind, to, group, body string, secrets [][]byte) []byte {
	t.Helper()
	var sent []byte
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent, _ = io.ReadAll(r.Body) }))
	defer s.Close()
	newClient(t).Ask(soon(t), kind, to, s.Listener.Addr().String(), []Message{{group, []byte(body), secrets}})
	if sent == nil {
		t.Fatal("nothing was sent")
	}
	return sent
}

func post(t *testing.T, address string, body io.Reader) (int, response) {
	t.Helper()
	r, err := http.NewRequestWithContext(soon(t), http.MethodPost, "http://"+address+Path, body)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	var got response
	json.NewDecoder(a.Body).Decode(&got)
	return a.StatusCode, got
}

// Whatever is changed in a request, nobody is asked.
func TestChangedRequests(t *testing.T) {
	good := capture(t, Probe, "n2", "/a", "body", [][]byte{secret})
	for name, change := range map[string]func(*request){
		"kind":         func(r *request) { r.Kind = Round },
		"from":         func(r *request) { r.From = "n3" },
		"group":        func(r *request) { r.Messages[0].Group = "/b" },
		"body":         func(r *request) { r.Messages[0].Body = []byte("bodY") },
		"nonce":        func(r *request) { r.Nonce[0]++ },
		"to":           func(r *request) { r.To = "n3" },
		"seal":         func(r *request) { r.Messages[0].Seals[0][0]++ },
		"short seal":   func(r *request) { r.Messages[0].Seals[0] = r.Messages[0].Seals[0][:16] },
		"no seal":      func(r *request) { r.Messages[0].Seals = nil },
		"many seals":   func(r *request) { r.Messages[0].Seals = append(make([][]byte, 1000), r.Messages[0].Seals...) },
		"shifted text": func(r *request) { r.From, r.To = "n1n", "2" },
	} {
		e := serve(t, map[string][][]byte{"/a": {secret}, "/b": {secret}})
		var r request
		if err := json.Unmarshal(good, &r); err != nil {
			t.Fatal(err)
		}
		change(&r)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		_, got := post(t, e.address(), bytes.NewReader(data))
		if len(e.answered()) > 0 || len(got.Messages) > 0 && got.Messages[0].Reason == "" {
			t.Errorf("%s: %+v, asked: %q", name, got, e.answered())
		}
	}
	e := serve(t, map[string][][]byte{"/a": {secret}})
	if code, got := post(t, e.address(), bytes.NewReader(good)); code != http.StatusOK || len(e.answered()) != 1 || got.Messages[0].Reason != "" {
		t.Errorf("the unchanged request: %d %+v", code, got)
	}
}

// The answer to another question, of another daemon, or of one without the key does not count.
func TestForgedAnswers(t *testing.T) {
	e := serve(t, map[string][][]byte{"/a": {secret}})
	_, old := post(t, e.address(), bytes.NewReader(capture(t, Round, "n2", "/a", "body", [][]byte{secret})))
	if old.Messages[0].Seals == nil {
		t.Fatal("there is no answer to replay")
	}
	for name, forge := range map[string]func(request) response{
		"replayed": func(request) response { return old },
		"without the key": func(r request) response {
			return response{1, []sealed{{Group: "/a", Body: []byte("yes"), Seals: seal([][]byte{foreign}, r.answer(r.Messages[0], []byte("yes"))...)}}}
		},
		"its own question": func(r request) response { return response{1, r.Messages} },
		"no seal":          func(request) response { return response{1, []sealed{{Group: "/a", Body: []byte("yes")}}} },
		"too few":          func(request) response { return response{1, nil} },
		"another version":  func(request) response { return response{2, old.Messages} },
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, h *http.Request) {
			var r request
			json.NewDecoder(h.Body).Decode(&r)
			json.NewEncoder(w).Encode(forge(r))
		}))
		got, err := newClient(t).Ask(soon(t), Round, "n2", s.Listener.Addr().String(), []Message{{"/a", []byte("body"), [][]byte{secret}}})
		s.Close()
		if err == nil && (got[0].Err == nil || got[0].Body != nil) {
			t.Errorf("%s: %q", name, got[0].Body)
		}
	}
}

func TestBadRequests(t *testing.T) {
	e := serve(t, map[string][][]byte{"/a": {secret}})
	large := `{"v":1,"kind":"round","from":"n1","to":"n2","nonce":"` + strings.Repeat("A", maxBody) + `"}`
	many, err := json.Marshal(request{V: 1, Kind: Round, To: "n2", Nonce: newNonce(), Messages: make([]sealed, maxMessages+1)})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"empty": "", "no JSON": "hello", "null": "null", "truncated": `{"v":1,"kind":"ro`, "oversized": large, "too many": string(many),
		"of a newer version": `{"v":2}`, "without a nonce": `{"v":1,"kind":"round","to":"n2"}`,
	} {
		if code, _ := post(t, e.address(), strings.NewReader(body)); code != http.StatusBadRequest {
			t.Errorf("%s: status %d", name, code)
		}
	}
	if a, err := http.Get("http://" + e.address() + Path); err != nil || a.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %v, %v", a, err)
	} else {
		a.Body.Close()
	}
	if len(e.answered()) > 0 {
		t.Errorf("asked: %q", e.answered())
	}
}

// Clients that never finish a request do not keep a peer from being answered, from however many addresses they come.
func TestUnfinishedRequests(t *testing.T) {
	e := serve(t, map[string][][]byte{"/a": {secret}})
	for i := range 2 * maxReads {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i/4))}}
		conn, err := from.DialContext(t.Context(), "tcp", e.address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", Path)
	}
	c := newClient(t)
	for range 20 {
		got, err := c.Ask(soon(t), Round, "n2", e.address(), []Message{{"/a", []byte("x"), [][]byte{secret}}})
		if err != nil || got[0].Err != nil {
			t.Fatalf("%v, %v", got, err)
		}
	}
}

// deadlines records the deadlines for reads.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// The limit of a read ends with the read: what is decoded or refused is not canceled. What was not read stays limited.
func TestTheLimitOfAReadEndsWithIt(t *testing.T) {
	h := NewHandler(ServerOptions{Node: "n2"})
	for body, limited := range map[string]bool{"not a request": false, strings.Repeat("x", maxBody+1): true} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body)))
		if last := w.set[len(w.set)-1]; w.Code != http.StatusBadRequest || last.IsZero() == limited {
			t.Errorf("%d bytes: status %d, deadlines %v", len(body), w.Code, w.set)
		}
	}
}

// At the limit, the oldest read of the network with the most reads is interrupted, and an IPv6 network counts as one client.
func TestWhichReadIsInterrupted(t *testing.T) {
	var s server
	var interrupted []string
	begin := func(remote string) *read {
		network := networkOf(&http.Request{RemoteAddr: remote})
		return s.begin(&read{network, func() { interrupted = append(interrupted, remote) }})
	}
	peer := begin("192.0.2.1:1")
	for i := range maxReads - 1 {
		begin(fmt.Sprintf("[2001:db8::%x]:1", i))
	}
	for i := range 3 {
		begin(fmt.Sprintf("192.0.2.2:%d", i))
	}
	if want := []string{"[2001:db8::0]:1", "[2001:db8::1]:1", "[2001:db8::2]:1"}; !slices.Equal(interrupted, want) {
		t.Errorf("interrupted %q, not %q", interrupted, want)
	}
	if s.end(peer); len(s.reads) != maxReads-1 {
		t.Errorf("%d reads are left", len(s.reads))
	}
}

// What nobody has authenticated costs little: fields are bounded, and nothing is hashed for a message without a seal.
func TestRequestsWithoutASeal(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	s := server{opt: ServerOptions{Node: "n2"}}
	for name, change := range map[string]func(*request){
		"sender":   func(r *request) { r.From = long },
		"group":    func(r *request) { r.Messages[1].Group = long },
		"question": func(r *request) { r.Messages[1].Body = make([]byte, maxQuestion+1) },
	} {
		r := request{V: version, Kind: Round, From: "n1", To: "n2", Nonce: newNonce(), Messages: make([]sealed, 2)}
		if err := s.check(r); err != nil {
			t.Fatal(err)
		}
		if change(&r); s.check(r) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	many := `{"messages":[` + strings.Repeat("{},", maxBody/3-10) + "{}]}"
	claimed := func(body string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		data, err := readBody(httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.decode(data); err == nil {
			t.Errorf("%.20s: accepted", body)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for _, body := range []string{many, strings.ReplaceAll(many, "{}", "0")} {
		if n := claimed(body); n > 8*maxBody {
			t.Errorf("%.20s: a body of %d bytes has claimed %d", body, len(body), n)
		}
	}
	question := []byte("question")
	for name, seals := range map[string][][]byte{"none": nil, "empty": {{}}, "short": {make([]byte, 31)}} {
		hashed := testing.AllocsPerRun(1, func() { verify([][]byte{secret}, seals, question) })
		if hashed > 0 {
			t.Errorf("%s: the question was hashed", name)
		}
	}
}

// A page in a browser gets no answer, and nobody without the key learns the name of this node or its groups.
func TestStrangersLearnNothing(t *testing.T) {
	e := serve(t, map[string][][]byte{"/a": {secret}})
	ask := func(to, group, origin string) (int, string) {
		t.Helper()
		body := capture(t, Round, to, group, "x", [][]byte{foreign})
		r, err := http.NewRequestWithContext(soon(t), http.MethodPost, "http://"+e.address()+Path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		a, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(text)
	}
	if code, _ := ask("n2", "/a", "http://evil.example"); code != http.StatusForbidden {
		t.Errorf("a page: status %d", code)
	}
	if _, text := ask("n1", "/a", ""); strings.Contains(text, "n2") {
		t.Errorf("to another node: %s", text)
	}
	_, known := ask("n2", "/a", "")
	_, unknown := ask("n2", "/b", "")
	if strings.ReplaceAll(known, "/a", "/b") != unknown {
		t.Errorf("a group that it has: %s; one that it does not have: %s", known, unknown)
	}
}

// A connection that loses data in one direction costs one request: the next one uses another.
func TestOneWayLoss(t *testing.T) {
	e := serve(t, map[string][][]byte{"/a": {secret}})
	p := faultproxy.ForTest(t, e.address())
	c, address := newClient(t), fmt.Sprintf("127.0.0.1:%d", p.Port())
	ask := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		got, err := c.Ask(ctx, Round, "n2", address, []Message{{"/a", []byte("x"), [][]byte{secret}}})
		if err != nil {
			return err
		}
		return got[0].Err
	}
	if err := ask(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []faultproxy.Mode{faultproxy.HalfOpen, faultproxy.BlackHole, faultproxy.HoldFromTarget, faultproxy.Refuse} {
		p.SetMode(mode)
		if err := ask(100 * time.Millisecond); err == nil {
			t.Errorf("mode %d: an answer came through", mode)
		}
		p.SetMode(faultproxy.Pass)
		if err := ask(10 * time.Second); err != nil {
			t.Errorf("after mode %d: %v", mode, err)
		}
	}
}

// Redirects and proxies are not followed: the address is that of the daemon itself.
func TestOtherPrograms(t *testing.T) {
	e := serve(t, map[string][][]byte{"/a": {secret}})
	for name, serve := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+e.address()+Path, http.StatusTemporaryRedirect)
		},
		"not found": http.NotFound,
		"page":      func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				w.Write(make([]byte, maxBody/10))
			}
		},
	} {
		s := httptest.NewServer(serve)
		_, err := newClient(t).Ask(soon(t), Round, "n2", s.Listener.Addr().String(), []Message{{"/a", []byte("x"), [][]byte{secret}}})
		s.Close()
		if err == nil {
			t.Errorf("%s: answered", name)
		}
	}
	if len(e.answered()) > 0 {
		t.Errorf("asked: %q", e.answered())
	}
}
