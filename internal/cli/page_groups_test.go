package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/web"
)

// manyGroups is the state of the groups of a daemon, host-01, which serves the real API and page.
type manyGroups struct {
	mu     sync.Mutex
	groups map[string]status.Group
	given  map[string]int // requests by what they say
}

// submit accepts a request, except for a drain in a group without a leader.
func (m *manyGroups) submit(name string, r request.Request) (request.Plan, error) {
	if r.Kind == request.KindDrain && m.get(name).Leader == "" {
		return request.Plan{}, &request.RefusedError{Err: errors.New("no other member is eligible")}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.given[fmt.Sprintf("%s %s for %s by %s: %s", r.Kind, r.Node, r.Options.For, r.Options.By, r.Options.Reason)]++
	return request.Plan{ID: 1, Messages: []string{"done"}}, nil
}

// submitted returns how many requests of that kind were accepted.
func (m *manyGroups) submitted(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.given[what]
}

const manyNames, manyHosts = 200, 10

func hostName(i int) string { return fmt.Sprintf("host-%02d", 1+i) }

// someGroups returns groups of which one has no leader, one is being taken over, and one has excluded members.
func someGroups() *manyGroups {
	m := &manyGroups{groups: make(map[string]status.Group), given: make(map[string]int)}
	for i := range manyNames {
		name := fmt.Sprintf("%s-%03d", []string{"billing", "ingest", "report", "search"}[i%4], i)
		g := status.Group{Root: "/zkelectd/" + name, State: "READY", Leader: hostName(i * 7 % manyHosts), Site: "dc1", Term: 7, Elector: hostName(0), Cause: "first", Reason: "first election"}
		for h := range manyHosts {
			member := status.Member{Node: hostName(h), Site: fmt.Sprintf("dc%d", 1+h/5), Roles: []string{}, Health: "ok", Eligible: "yes", Host: "host.example.com", Incarnation: fmt.Sprint(h)}
			if hostName(h) == g.Leader {
				member.Roles = append(member.Roles, "leader")
			}
			if h == 0 {
				member.Roles = append(member.Roles, "elector")
			}
			g.Members = append(g.Members, member)
		}
		m.groups[name] = g
	}
	m.change("billing-008", func(g *status.Group) {
		g.State, g.Leader = "NONE", ""
		for i := range g.Members {
			g.Members[i].Roles, g.Members[i].Eligible = []string{}, "excluded, strike 2: the child did not become ready"
		}
	})
	m.change("billing-016", func(g *status.Group) {
		g.State, g.Leader = "PROGRESS", hostName(3)
		for i := range g.Members {
			g.Members[i].Roles = []string{}
		}
		g.Members[3].Roles = []string{"candidate"}
	})
	m.change("billing-024", func(g *status.Group) {
		g.Members[9].Eligible = "cordoned by ann: disk replacement"
		g.Members = slices.Delete(g.Members, 3, 5)
		g.Problems = []string{"the policy in force, which host-01 has published, is not in the files of host-05: 'zkelectd policy -g billing-024' prints it for them"}
	})
	return m
}

// change changes a group.
func (m *manyGroups) change(name string, change func(*status.Group)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.groups[name]
	g.Members = slices.Clone(g.Members)
	change(&g)
	m.groups[name] = g
}

func (m *manyGroups) get(name string) status.Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[name]
}

// group returns a group as host-01 serves it.
func (m *manyGroups) group(name string) *web.Group {
	feed := status.NewFeed()
	return &web.Group{
		Name: name, Feed: feed, Submit: func(_ context.Context, r request.Request) (request.Plan, error) { return m.submit(name, r) },
		View: func() status.Daemon {
			g := m.get(name)
			v := status.Daemon{
				Node: hostName(0), Site: "dc1", Root: g.Root, Incarnation: "0", Phase: "standby", Elector: true, Loop: true, Session: true, Connected: true, UpdatedAt: 1, SnapshotAt: 1, RespondedAt: 1,
				Elected: g.Leader, ElectedTerm: g.Term, Membership: status.MembershipMember, Holder: &status.Holder{Node: g.Leader, State: g.State, Term: g.Term}, SessionTimeout: cluster.Duration(6 * time.Second),
			}
			switch {
			case g.Leader == v.Node && g.State == "READY":
				v.Phase, v.Term, v.LeaseRemaining, v.Lease = "leading", g.Term, cluster.Duration(2*time.Second), cluster.Duration(2700*time.Millisecond)
			case name == "billing-004":
				v.Paused = true
			case name == "billing-036":
				v.Loop, v.Incarnation, v.Elector = false, "", false
				v.Membership, v.MembershipReason = status.MembershipRefused, "host-09 uses the id of this host"
			}
			return v
		},
		Group: func(context.Context) (status.Group, error) { return m.get(name), nil },
		History: func(context.Context) ([]cluster.PastTerm, error) {
			return []cluster.PastTerm{{Term: 7, Node: "host-01"}}, nil
		},
		Explain: func(context.Context) (whatif.Explanation, error) {
			return whatif.Explanation{Members: []whatif.RankedMember{}}, nil
		},
		DryRun: func(context.Context, request.Request) ([]string, error) { return nil, errors.New("no forecast") },
	}
}

// serve serves the API and the page, and returns the address.
func (m *manyGroups) serve(t *testing.T) string {
	t.Helper()
	var all []*web.Group
	for name := range m.groups {
		all = append(all, m.group(name))
	}
	slices.SortFunc(all, func(a, b *web.Group) int { return strings.Compare(a.Name, b.Name) })
	current := func() []*web.Group {
		return slices.DeleteFunc(slices.Clone(all), func(g *web.Group) bool { return m.get(g.Name).Root == "" })
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	put(t, tokens, "ann:"+gridToken+"\n")
	known, err := web.ReadTokens(tokens, false)
	if err != nil {
		t.Fatal(err)
	}
	operators := web.NewAuthenticator(web.Config{}, slog.New(slog.DiscardHandler))
	operators.SetTokens(known)
	server := httptest.NewServer(web.New(web.Options{Node: hostName(0), Groups: current, Authenticator: operators}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return strings.TrimPrefix(server.URL, "http://")
}

const gridToken = "a-token-for-this-test"

const (
	gridRows = "document.querySelectorAll('#grid .row[data-key]:not(.head)').length"
	here     = "document.activeElement.closest('.row')?.dataset.key + ' ' + [...document.activeElement.parentElement.children].indexOf(document.activeElement)"
)

// press presses a key, and waits until the focus is in a cell of the grid: its group and column.
func (t *tab) press(key, want string) {
	t.f.t.Helper()
	t.do(chromedp.KeyEvent(key))
	t.until(fmt.Sprintf("%q leads to %s", key, want), fmt.Sprintf("%s === %q", here, want))
}

// The page of a daemon with 200 groups on 10 hosts opens with a grid, which leads to the page of each group by keyboard.
func TestGridInABrowser(t *testing.T) {
	t.Parallel()
	m := someGroups()
	p := (&fleet{t: t}).open(m.serve(t))
	p.until("all groups are shown", gridRows+" === 200")
	p.until("all hosts are shown", "document.querySelectorAll('#grid .head .host').length === 10")
	p.until("it is live", live)
	p.shows("#strip", "200 All")
	p.shows("#strip", "2 Without a leader")
	p.shows("#strip", "2 With problems")
	p.shows("#strip", "1 Paused")
	p.shows("#strip", "20 Led here")
	p.until("the title warns", "document.title.startsWith('2 WITHOUT A LEADER')")

	// A change arrives by itself, and the focus stays.
	p.focus("[data-key=billing-000] .group-name")
	m.change("billing-000", func(g *status.Group) {
		g.Leader = hostName(8)
		for i := range g.Members {
			g.Members[i].Roles = []string{}
		}
		g.Members[8].Roles = []string{"leader"}
	})
	p.until("host-09 leads it", "document.querySelector('#grid [data-key=billing-000] .led-by').innerText === 'host-09' && "+here+" === 'billing-000 0'")
	p.click("#strip [data-act=leaderless]")
	p.until("two have no leader", gridRows+" === 2")
	p.shows("#grid", "no leader")
	p.shows("#grid", "takes over")
	p.click("#strip [data-act=problems]")
	p.shows("#grid", "billing-024")
	p.focus("[data-key=billing-036] .group-name")
	p.shows("#cell", "refused: host-09 uses the id of this host")
	p.click("#strip [data-act=all]")
	p.until("all are shown again", gridRows+" === 200")

	// By keyboard: find a group, look at its cells, open it, and return to the same place.
	p.do(chromedp.KeyEvent("/"))
	p.until("the search box has the focus", "document.activeElement.id === 'filter'")
	// chromedp also sends the character of a key whose default the page has prevented.
	evaluate[string](p, "document.querySelector('#filter').value = ''")
	p.do(chromedp.KeyEvent("search 01"))
	p.until("some are found", gridRows+" > 1 && "+gridRows+" < 20")
	p.press(kb.ArrowDown, "search-011 0")
	p.press(kb.ArrowDown, "search-015 0")
	p.press(kb.ArrowRight, "search-015 1")
	p.shows("#cell", "search-015, host-01: can lead, elector")
	p.press(kb.End, "search-019 1")
	p.press(kb.Home, "search-011 1")
	p.press(kb.ArrowLeft, "search-011 0")
	p.press(kb.ArrowDown, "search-015 0")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("the page of the group is shown", "location.search === '?group=search-015'")
	p.shows("#leader .name", m.get("search-015").Leader)
	p.shows("#all-groups", "All groups")
	p.until("it is live", live)
	evaluate[bool](p, "history.back() || true")
	p.until("the grid is as before", here+" === 'search-015 0' && document.querySelector('#filter').value === 'search 01'")
	p.do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape))
	p.until("all are shown again", gridRows+" === 200")
	p.checkConsole()
}

// A host is cordoned in all groups from the grid, and drained where that is possible: the others are named.
func TestRequestsForAHostInABrowser(t *testing.T) {
	t.Parallel()
	m := someGroups()
	p := (&fleet{t: t}).open(m.serve(t))
	p.until("it is live", live)
	p.click("[data-act='host host-02']")
	p.shows("dialog .effect", "In all groups of this daemon, of which it leads 20: host-02 will not be elected. If it leads, leadership moves away.")
	p.shows("dialog", "This page may not submit requests")
	p.until("it cannot be submitted", "document.querySelector('dialog .primary').disabled")
	p.click("dialog .note button")
	p.do(chromedp.SetValue(chromedp.CSS("dialog input"), gridToken))
	p.click("dialog .primary")
	p.shows("#operator", "Operator: ann")

	p.click("[data-act='host host-02']")
	p.shows("dialog .primary", "Drain")
	p.enter("dialog input[list]", "2h")
	p.enter("dialog input[maxlength]", "new disk")
	p.click("dialog .primary")
	p.shows("dialog .refusal", "Not accepted in 1 of 200 groups:")
	p.shows("dialog .refusal", "billing-008: no other member is eligible")
	if n := m.submitted("drain host-02 for 2h0m0s by ann: new disk"); n != 199 {
		t.Errorf("%d groups were drained", n)
	}
	p.do(chromedp.SetValue(chromedp.CSS("dialog select"), "cordon"))
	evaluate[bool](p, "document.querySelector('dialog select').dispatchEvent(new Event('change'))")
	p.shows("dialog .effect", "If it leads, it keeps leading.")
	p.click("dialog .primary")
	p.shows("#notice", "Cordon host-02: 200 of 200 groups")
	if n := m.submitted("cordon host-02 for 2h0m0s by ann: new disk"); n != 200 {
		t.Errorf("%d groups were cordoned", n)
	}
}

// The grid is readable on a phone, in both color schemes, and by a screen reader, and fast.
func TestAccessibilityOfTheGridInABrowser(t *testing.T) {
	t.Parallel()
	m := someGroups()
	p := (&fleet{t: t}).open(m.serve(t))
	p.until("all groups are shown", gridRows+" === 200 && document.querySelectorAll('#grid .head .host').length === 10")
	p.checkWidth()
	for _, scheme := range []string{"light", "dark"} {
		p.emulate("prefers-color-scheme", scheme)
		for _, state := range []string{"", "stale"} {
			if faint := evaluate[[]string](p, fmt.Sprintf(faintText, state)); len(faint) > 0 {
				t.Errorf("the contrast is too low in the %s scheme (%s): %q", scheme, state, faint)
			}
		}
	}
	tree := p.accessibilityTree()
	for _, want := range []string{
		"main ", "region Groups", "grid Groups", "searchbox Find", "columnheader Group", "link billing-000", "group Groups to show", "gridcell host-01: can lead, elector",
	} {
		if !slices.ContainsFunc(tree, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("a screen reader does not find %q", want)
		}
	}
	// Typing in the search box must not lag: each key renders all rows.
	if ms := evaluate[float64](p, `(() => {
		const box = document.querySelector('#filter'), began = performance.now();
		for (const text of ['b', 'bi', '', 'report', '']) { box.value = text; box.dispatchEvent(new Event('input')); }
		return document.body.offsetHeight && performance.now() - began;
	})()`); ms > 2000 {
		t.Errorf("five changes of the search take %.0f ms", ms)
	} else {
		t.Logf("five changes of the search take %.0f ms", ms)
	}

	p.do(chromedp.EmulateViewport(360, 740))
	p.until("it fits on a phone", "document.documentElement.scrollWidth <= 360")
	p.emulate("prefers-color-scheme", "light")
	p.enter("#filter", "billing-016")
	p.until("one is found", gridRows+" === 1")
	p.click("#grid [data-key=billing-016] .candidate")
	p.until("the page of the group is shown", "location.search === '?group=billing-016'")
	p.shows("#leader .name", hostName(3))
	p.checkConsole()
}

// The grid never shows old data as new.
func TestStalenessOfTheGridInABrowser(t *testing.T) {
	t.Parallel()
	m := someGroups()
	addr := m.serve(t)
	p := (&fleet{t: t}).open(addr)
	p.until("it is live", live)
	p.advanceClock()
	evaluate[int](p, "window.fetch = () => Promise.reject(new TypeError('down')); 1")
	p.shows("#banner", "Not live since")
	p.until("it is stale", stale+" && document.title.startsWith('(not live)')")

	// The page of a group that a reload removes says so, and the grid no longer has it.
	p = (&fleet{t: t}).open(addr + "/?group=report-010")
	p.shows("#leader", m.get("report-010").Leader)
	p.until("it is live", live)
	m.change("report-010", func(g *status.Group) { g.Root = "" })
	p.shows("#banner", "this daemon has no group of that name")
	p.click("#all-groups a")
	p.until("the others are shown", gridRows+" === 199")
}
