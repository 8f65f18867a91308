package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

// startWithPages starts daemons at site dc1 with HTTP, each with a lower priority than the one before. Failback is manual.
func (f *fleet) startWithPages(ids ...string) {
	f.t.Helper()
	for i, id := range ids {
		// The lease outlasts a browser that keeps a loaded machine busy.
		f.configure(id, "dc1", 100-i, fmt.Sprintf("zookeeper: {session_timeout: 15s}\nhttp: {listen: 'unix:%s'}\npolicy: {failback: manual}\n", f.socket(id)))
		f.start(id)
		f.answers(id, "/readyz", 200)
	}
	f.until(ids[0]+" leads", func(g status.Group) bool { return len(g.Members) == len(ids) && leads(ids[0])(g) })
}

const (
	leaseShown = "Number(document.querySelector('#lease')?.getAttribute('aria-valuenow') || 0) > 0"
	live       = "document.querySelector('#live').innerText === 'live'"
	stale      = "document.body.classList.contains('stale')"
)

// A leader that ZooKeeper still names, but that renews nothing, is no green page. The page shows the failover by itself.
func TestAFailoverInABrowser(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startWithPages("a", "b")
	p := f.open(f.proxy("b"))
	p.shows("#leader", "a")
	p.shows("#leader", "READY")
	p.until("it is live", live)
	p.shows("#members", "2 of 2 eligible")
	p.shows("#why", "incumbent")
	p.shows("#history", "first election")
	p.shows("#problems", "Anyone who can reach ZooKeeper")
	if evaluate[bool](p, leaseShown) {
		t.Error("b shows the lease of a")
	}
	evaluate[int](p, "window.loaded = 1")
	const terms = "document.querySelectorAll('#history li').length"
	before := evaluate[int](p, terms)
	hung := f.daemon("a")
	syscall.Kill(hung, syscall.SIGSTOP)
	p.shows("#leader", "The lease is not confirmed: not renewed for ")
	p.shows("#summary", "lease not confirmed: not renewed for ")
	if class := evaluate[string](p, "document.querySelector('#summary').className"); class != "warn" {
		t.Errorf("the summary is %q", class)
	}
	syscall.Kill(hung, syscall.SIGKILL)
	p.shows("#leader .name", "b")
	p.shows("#leader", "READY")
	p.until("b shows its lease", leaseShown)
	p.until("a leader is confirmed", "!document.querySelector('#summary').innerText.includes('not confirmed')")
	p.until("the change is announced", "document.querySelector('#announcement').textContent.startsWith('b, site dc1, READY')")
	p.until("the history has it", fmt.Sprintf("%s === %d", terms, before+1))
	p.until("the title has it", "document.title.startsWith('b READY')")
	if evaluate[int](p, "window.loaded") != 1 {
		t.Error("it was loaded again")
	}
	p.checkConsole()
	f.checkInvariants()
}

// The page never shows old data as new, whether the daemon has ended, or is stopped with its connections open.
func TestStalenessInABrowser(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startWithPages("a")
	p := f.open(f.proxy("a"))
	p.until("a shows its lease", leaseShown)
	evaluate[int](p, "window.loaded = 1")

	daemon, guard := f.daemon("a"), f.daemons["a"]
	guard.Signal(syscall.SIGSTOP) // otherwise it would kill the stopped daemon
	syscall.Kill(daemon, syscall.SIGSTOP)
	p.until("the lease is over, long before the page can know that the daemon does not answer", "!("+leaseShown+") && !"+stale)
	p.advanceClock()
	p.shows("#banner", "Not live since")
	p.until("it is stale", stale)
	syscall.Kill(daemon, syscall.SIGKILL)
	guard.Signal(syscall.SIGCONT) // it starts another daemon
	p.until("it is live", live)
	p.until("a leads again", leaseShown)
	f.stop("a")
	p.shows("#banner", "Not live since")
	p.until("it shows no lease", stale+" && !("+leaseShown+") && document.title.startsWith('(not live)')")
	f.start("a")
	p.until("it is live again by itself", leaseShown+" && document.querySelector('#banner').hidden && !"+stale)
	if evaluate[int](p, "window.loaded") != 1 {
		t.Error("it was loaded again")
	}
}

// The daemon decides who may submit requests: to others the page shows forecasts only.
func TestRequestsInABrowser(t *testing.T) {
	t.Parallel()
	const token = "a-token-for-this-test"
	f := newFleet(t)
	addr := "127.0.0.1:" + closedPort(t)
	tokens := filepath.Join(f.dir, "tokens")
	put(t, tokens, "night-shift:"+token+"\n")
	f.configure("a", "dc1", 2, fmt.Sprintf("zookeeper: {session_timeout: 15s}\nhttp: {listen: '%s', token_file: '%s'}\n", addr, tokens))
	f.start("a")
	f.until("a leads", leads("a"))
	f.configure("b", "dc1", 1, "")
	f.start("b")
	f.until("b has joined", func(g status.Group) bool { return len(g.Members) == 2 })
	f.configure("c", "dc2", 1, "")
	f.start("c")
	f.until("c has joined", func(g status.Group) bool { return len(g.Members) == 3 })
	f.stop("c")
	p := f.open(addr)
	p.until("b is shown, and the ghost of c", "document.querySelectorAll('.member:not(.ghost)').length === 2 && document.querySelectorAll('.ghost').length === 1")
	p.shows(".ghost", "STOPPED")

	p.click(".controls button")
	p.shows("dialog", "Leadership moves from a to b, and stays there until the request ends.")
	p.shows("dialog .forecast", "b (dc1) takes over: move: moved to b by you")
	p.shows("dialog", "This page may not submit requests: operator requests need a token from http.token_file")
	p.until("it cannot be submitted", "document.querySelector('dialog .primary').disabled")
	p.click("dialog .note button")
	p.enter("dialog input", "a-guess-is-not-enough")
	p.click("dialog .primary")
	p.shows("dialog .refusal", "Refused: this token is not in http.token_file")
	p.do(chromedp.SetValue(chromedp.CSS("dialog input"), token))
	p.click("dialog .primary")
	p.shows("#operator", "Operator: night-shift")

	p.click(".controls button")
	p.do(chromedp.SendKeys(chromedp.CSS("dialog input[list]"), "2h"), chromedp.SendKeys(chromedp.CSS("dialog input[maxlength]"), "disk <works>"))
	p.click("dialog .primary")
	p.shows("#notice", "moves leadership from a (dc1) to b (dc1) for 2h0m0s")
	p.shows("#leader .name", "b")
	p.shows("#requests", "moved to b")
	p.shows("#requests", "night-shift")
	p.shows("#requests", "disk <works>")
	p.shows("#requests", "1 h 59 min left")
	f.until("b leads", leads("b"))
	p.shows("#history", "by night-shift")

	// A request that is refused in the current state of the group can be forced.
	p.click(".site-head button")
	p.shows("dialog", "site dc1 will not be elected")
	p.click("dialog .primary")
	p.shows("dialog .refusal", "Refused (409): no other member is eligible")
	p.shows("dialog", "submit it anyway (force)")
	p.do(chromedp.KeyEvent(kb.Escape))

	p.click("#requests [aria-label='End: moved to b']")
	p.shows("dialog", "The move ends.")
	p.click("dialog .primary")
	p.shows("#leader .name", "a")
	p.shows("#requests", "None: policy alone decides.")
	for _, c := range []struct{ press, shows string }{{"[data-act='pause ']", "paused"}, {"[data-act='resume ']", "None"}} {
		p.click(".controls " + c.press)
		p.click("dialog .primary")
		p.shows("#requests", c.shows)
	}

	p.click("[aria-label='Forget c']")
	p.click("dialog .primary")
	p.shows("#notice", "forgotten: c (site dc2), stopped")
	p.until("its ghost is gone", "!document.querySelector('.ghost') && !document.querySelector('[aria-label=\"Site dc2\"]')")

	p.do(chromedp.Reload())
	p.shows("#operator", "Operator: night-shift")
	p.click("#operator")
	p.click("dialog .actions button") // forgets the token
	p.shows("#operator", "Use a token…")
	for _, m := range p.console() { // a browser logs each refusal; /leader answers 503 when the lease has just ended
		if !strings.Contains(m, "status of 401") && !strings.Contains(m, "status of 409") && !strings.Contains(m, "status of 503") {
			t.Errorf("the console has %s", m)
		}
	}
	f.checkInvariants()
}

// submit submits a request, which must be accepted.
func (f *fleet) submit(args ...string) {
	f.t.Helper()
	if out, err := f.run(args...); err != nil {
		f.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// Anyone who can write to ZooKeeper chooses names and reasons. The page shows them as text.
func TestMarkupInABrowser(t *testing.T) {
	t.Parallel()
	const (
		id     = `<img src=x onerror=window.hacked=1>`
		site   = `"><svg onload=window.hacked=2>`
		label  = `<script>window.hacked=3<\script>`
		reason = `</p><script>window.hacked=4</script><img src=x onerror=window.hacked=5>`
	)
	f := newFleet(t)
	if err := os.WriteFile(f.file("a"), fmt.Appendf(nil, "node: {id: '%s', site: '%s', labels: {x: '%s'}}\nzookeeper: {servers: ['%s'], root: %s, session_timeout: 15s}\n"+
		"http: {listen: 'unix:%s'}\nchild: {command: [sleep, infinity]}\n", id, site, label, shared.Addr(), f.paths.Root, f.socket("a")), 0o600); err != nil {
		t.Fatal(err)
	}
	f.start("a")
	f.until("it leads", leads(id))
	f.write(f.paths.RegisterTx(cluster.Node{ID: strings.Repeat("W", 128), Instance: cluster.NewInstance(1), Site: strings.Repeat("<b>", 40), Host: "<i>host", Unhealthy: reason})...)
	f.submit("pause", "--reason", reason, "--for", "1h")
	p := f.open(f.proxy("a"))
	p.shows("#leader .name", id)
	p.shows("#leader", reason)
	p.shows("#members", site)
	p.shows("#members", label)
	p.shows("#requests", reason)
	p.shows("#why", id)
	p.shows("#history", id)
	p.click("#members .member button")
	p.shows("dialog", id)
	if n := evaluate[int](p, "document.querySelectorAll('main img, main svg, main b, main i, script:not([src]), dialog img').length"); n > 0 {
		t.Errorf("%d elements are made of names", n)
	}
	if evaluate[bool](p, "'hacked' in window") {
		t.Error("a name was run")
	}
	p.checkConsole()
	p.do(chromedp.KeyEvent(kb.Escape))
	p.checkWidth()
}

// checkWidth checks that the page fits on screens of different widths.
func (t *tab) checkWidth() {
	t.f.t.Helper()
	for _, width := range []int64{360, 700, 1200} {
		t.do(chromedp.EmulateViewport(width, 800))
		if got := evaluate[int64](t, "document.documentElement.scrollWidth"); got > width {
			t.f.t.Errorf("at %d it is %d wide", width, got)
		}
	}
}

// The page of a large group is accessible on small screens, in both color schemes, by keyboard and with a screen reader.
func TestAccessibilityInABrowser(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.startWithPages("a")
	const many = 500
	for i := range many {
		n := cluster.Node{ID: fmt.Sprintf("host-%03d", i), Instance: cluster.NewInstance(1), Site: fmt.Sprintf("dc%d", 1+i%3), Host: "host.example.com", PID: i}
		if i%50 == 0 {
			n.Unhealthy = "the disk is full"
		}
		f.write(f.paths.RegisterTx(n)...)
	}
	f.submit("cordon", "host-001", "--for", "2h")
	p := f.open(f.proxy("a"))
	p.shows("#members", fmt.Sprintf("%d of %d eligible", many+1-10-1, many+1))
	p.until("all have joined", fmt.Sprintf("document.querySelectorAll('.member').length === %d", many+1))
	p.until("ineligible members come first", "document.querySelector('[aria-label=\"Site dc2\"] .member').innerText.includes('host-001')")
	p.until("the request is shown", "document.querySelectorAll('#requests tbody tr').length === 1")
	p.checkWidth()

	for _, scheme := range []string{"light", "dark"} {
		p.emulate("prefers-color-scheme", scheme)
		for _, state := range []string{"", "stale"} {
			if faint := evaluate[[]string](p, fmt.Sprintf(faintText, state)); len(faint) > 0 {
				t.Errorf("the contrast is too low in the %s scheme (%s): %q", scheme, state, faint)
			}
		}
	}

	p.checkScreenReader()
	p.enter("#search", "host-042")
	p.until("one is found", "document.querySelectorAll('.member').length === 1")
	p.checkKeyboard()
	p.checkConsole()
}

func (t *tab) checkScreenReader() {
	t.f.t.Helper()
	tree := t.accessibilityTree()
	for _, want := range []string{
		"banner ", "main ", "contentinfo ", "region Leader", "region Members", "region Requests and exclusions", "region Ranking", "region Last terms", "region Site dc1",
		"heading Leader", "heading dc1", "meter Lease", "button Move…", "button Request for host-001", "button Request for site dc1", "searchbox Find", "columnheader Rank",
		"table The members, best first", "alert ",
	} {
		if !slices.Contains(tree, want) && want != "alert " {
			t.f.t.Errorf("a screen reader does not find %q", want)
		}
	}
	for _, nameless := range []string{"button ", "link ", "searchbox ", "textbox ", "combobox ", "region ", "table ", "meter "} {
		if slices.Contains(tree, nameless) {
			t.f.t.Errorf("a %shas no name", nameless)
		}
	}
}

// checkKeyboard goes through the page with the tab key.
func (t *tab) checkKeyboard() {
	t.f.t.Helper()
	evaluate[bool](t, "document.activeElement.blur() || true")
	var reached []string
	for range 60 {
		t.do(chromedp.KeyEvent(kb.Tab))
		reached = append(reached, evaluate[string](t, `(() => {
			const e = document.activeElement, outline = getComputedStyle(e).outlineStyle;
			return (e.getAttribute('aria-label') || e.innerText || e.id) + (outline === 'none' ? ' unseen' : '');
		})()`))
	}
	for _, want := range []string{"Skip to the leader", "Use a token…", "Move…", "Pause…", "search", "Request for site dc1", "Request for host-042", "End: cordoned host-001"} {
		if !slices.Contains(reached, want) && !(want == "Use a token…" && slices.ContainsFunc(reached, func(s string) bool { return strings.HasPrefix(s, "Operator: ") })) {
			t.f.t.Errorf("the keyboard does not reach %q, but %q", want, reached)
		}
	}
	t.focus(".controls button")
	t.do(chromedp.KeyEvent(kb.Enter))
	t.shows("dialog h2", "Move leadership")
	evaluate[bool](t, "((b) => { b.replaceWith(b.cloneNode(true)); return true; })(document.querySelector('.controls button'))") // as an update may
	t.do(chromedp.KeyEvent(kb.Escape))
	t.until("the dialog is closed, and the focus where it was", "!document.querySelector('dialog') && document.activeElement.innerText === 'Move…'")
}

// faintText returns the texts whose contrast is below 4.5, with a class of the body set.
const faintText = `((state) => {
	if (state) document.body.classList.add(state);
	const numbers = (c) => { const n = c.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
	const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return numbers(getComputedStyle(document.documentElement).backgroundColor); };
	const faint = new Set();
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || !e.getClientRects().length) continue;
		const a = light(numbers(getComputedStyle(e).color)), b = light(behind(e));
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < 4.5) faint.add(e.className + ' ' + walker.currentNode.data.slice(0, 30) + ' ' + contrast.toFixed(2));
	}
	if (state) document.body.classList.remove(state);
	return [...faint].slice(0, 10);
})('%s')`
