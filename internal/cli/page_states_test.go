package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"zkelectd/internal/cluster"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/operator/request"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/web"
)

// pageState is the state of a group as n1 serves it, with the real API and page.
type pageState struct {
	group   status.Group
	members []whatif.RankedMember
	heir    string
	terms   []cluster.PastTerm
	answers []cluster.RankedAnswer // to the roll call
	// failsafe is what n1 says of failsafe mode, and err why it cannot read the group; both may be nil. They are read and set under mu.
	mu       sync.Mutex
	failsafe *status.Failsafe
	err      error
}

func (p *pageState) outage(f *status.Failsafe, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failsafe, p.err = f, err
}

func (p *pageState) inOutage() (*status.Failsafe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failsafe, p.err
}

var stateSites = []string{"fra", "ams", "waw"}

// steadyState is a group of n nodes at three sites that n1 has led for three hours, after a failover of n2.
func steadyState(n int) *pageState {
	now := time.Now()
	since := now.Add(-3*time.Hour - 10*time.Minute)
	p := &pageState{heir: "n2"}
	p.group = status.Group{
		Root: "/zkelectd/billing", State: "READY", Leader: "n1", Site: "fra", Term: 41, Since: &since, API: "n1.example.com:7980", Cause: "failure",
		Reason: "n2 is gone; n1 is the best of 4", Elector: "n3", Policy: "rank site, priority, revision 3, published by ann@host", Expected: n,
	}
	for i := range n {
		m := status.Member{
			Node: fmt.Sprintf("n%d", i+1), Site: stateSites[i%len(stateSites)], Priority: 100 - i%100, Roles: []string{}, Health: "ok", Eligible: "yes", PID: 1200 + i,
			API: fmt.Sprintf("n%d.example.com:7980", i+1), Host: fmt.Sprintf("n%d.example.com", i+1), Incarnation: fmt.Sprintf("m%010d", i), Labels: map[string]string{"rack": fmt.Sprint(i % 7)},
		}
		switch m.Node {
		case "n1":
			m.Roles = []string{"leader"}
		case "n3":
			m.Roles = []string{"elector"}
		}
		p.group.Members = append(p.group.Members, m)
	}
	term := func(number int64, node, previous string, cause cluster.Cause, reason string, ago time.Duration, leaderless cluster.Duration) {
		ready := cluster.Duration(340 * time.Millisecond)
		t := cluster.PastTerm{Term: number, Node: node, Site: "fra", Previous: previous, Cause: cause, Reason: reason, Outcome: "READY", ToReady: &ready, Time: now.Add(-ago)}
		if leaderless > 0 {
			t.Leaderless = &cluster.Gap{For: leaderless}
		}
		p.terms = append(p.terms, t)
	}
	term(37, "n1", "", cluster.CauseFirst, "first election", 20*time.Hour, 0)
	term(38, "n2", "n1", cluster.CauseMove, "moved to n2 by ann@host", 9*time.Hour, cluster.Duration(410*time.Millisecond))
	term(39, "n4", "n2", cluster.CauseDrain, "n2 is drained", 6*time.Hour, cluster.Duration(380*time.Millisecond))
	term(40, "n2", "n4", cluster.CausePreempt, "n2 is better", 5*time.Hour, cluster.Duration(400*time.Millisecond))
	term(41, "n1", "n2", cluster.CauseFailure, "n2 is gone; n1 is the best of 4", 3*time.Hour+10*time.Minute, cluster.Duration(12*time.Minute))
	return p
}

// rank ranks the members as they are in the group.
func (p *pageState) rank() {
	p.members = nil
	rank := 0
	for i, m := range p.group.Members {
		score := func(ranker string, value float64, words string) whatif.Score {
			return whatif.Score{Ranker: ranker, Value: &value, Words: words}
		}
		r := whatif.RankedMember{Node: m.Node, Site: m.Site, Scores: []whatif.Score{
			score("move", 0, ""), score("site", float64(200-50*(i%3)), "site "+m.Site), score("priority", float64(m.Priority), fmt.Sprintf("priority %d", m.Priority)),
			score("incumbent", map[bool]float64{true: 1}[m.Node == p.group.Leader], ""), score("oldest", float64(-i), fmt.Sprintf("sequence %d", i)),
		}}
		if m.Eligible == "yes" {
			rank++
			r.Rank = rank
		} else {
			r.Refusals = []policy.Refusal{{Filter: "cordon", Reason: m.Eligible}}
		}
		p.members = append(p.members, r)
	}
}

// serve returns the group as the API serves it.
func (p *pageState) serve(name string) *web.Group {
	p.rank()
	return &web.Group{
		Name: name, Feed: status.NewFeed(),
		View: func() status.Daemon {
			v := status.Daemon{
				Node: "n1", Site: "fra", Root: "/zkelectd/" + name, Incarnation: "0", Phase: "standby", Loop: true, Session: true, Connected: true, UpdatedAt: 1, SnapshotAt: 1, RespondedAt: 1,
				Elected: p.group.Leader, ElectedTerm: p.group.Term, Membership: status.MembershipMember, SessionTimeout: cluster.Duration(6 * time.Second),
			}
			if p.group.Leader == v.Node && p.group.State == "READY" {
				v.Phase, v.Term, v.LeaseRemaining, v.Lease = "leading", p.group.Term, cluster.Duration(2*time.Second), cluster.Duration(2700*time.Millisecond)
			}
			v.Failsafe, _ = p.inOutage()
			return v
		},
		Group: func(context.Context) (status.Group, error) {
			_, err := p.inOutage()
			return p.group.Judged(time.Now()), err
		},
		History: func(context.Context) ([]cluster.PastTerm, error) { return p.terms, nil },
		Explain: func(context.Context) (whatif.Explanation, error) {
			return whatif.Explanation{
				Leader: p.group.Leader, Site: p.group.Site, Term: p.group.Term, PolicyType: "rank", Revision: 3, Members: p.members, Heir: p.heir, RollCall: p.answers,
				Changes: []string{"if n1 is lost, n2 (ams) leads", "n2 comes after n1: site fra has 200 against site ams has 150"},
			}, nil
		},
		DryRun: func(_ context.Context, r request.Request) ([]string, error) {
			if r.Node == "n5" && !r.Options.Force {
				return nil, &request.RefusedError{Err: errors.New("leadership cannot move to n5: cordoned by ann@host")}
			}
			if r.Kind == request.KindForget {
				return []string{fmt.Sprintf("forgotten: %s (site fra), lost", r.Node), "n1 (fra) continues to lead"}, nil
			}
			return []string{fmt.Sprintf("moves leadership from n1 (fra) to %s (ams)", r.Node), r.Node + " (ams) takes over: move: moved by you"}, nil
		},
	}
}

// longValue is as long as a value may be.
var longValue = "tcp://n1:7000/" + strings.Repeat("x", cluster.MaxValue-14)

// pageStates returns the states that a page can show, by the names of their groups.
func pageStates() map[string]*pageState {
	now := time.Now()
	ago := func(d time.Duration) *time.Time { t := now.Add(-d); return &t }
	left := func(d time.Duration) *cluster.Duration { v := cluster.Duration(d); return &v }
	all := make(map[string]*pageState)
	add := func(name string, n int, change func(p *pageState, g *status.Group)) {
		p := steadyState(n)
		change(p, &p.group)
		all[name] = p
	}
	add("steady", 5, func(*pageState, *status.Group) {})
	add("paused", 5, func(_ *pageState, g *status.Group) {
		g.Requests = []status.Request{{ID: 7, Kind: "pause", By: "ann@host", Reason: "network maintenance", Time: *ago(44 * time.Minute), Remaining: left(76 * time.Minute)}}
	})
	add("moved", 5, func(_ *pageState, g *status.Group) {
		g.Value = longValue
		g.Members[4].Eligible = "cordoned by ann@host: disk replacement"
		g.Requests = []status.Request{
			{ID: 8, Kind: "move", Target: "n1", By: "ann@host", Reason: "load test", Time: *ago(3 * time.Hour)},
			{ID: 9, Kind: "cordon", Target: "n5", By: "ann@host", Reason: "disk replacement", Time: *ago(26 * time.Hour), Remaining: left(2 * time.Hour)},
		}
	})
	add("lost", 3, func(_ *pageState, g *status.Group) {
		g.Expected = 5
		g.Absent = []status.AbsentMember{
			{Node: "n4", Site: "fra", State: "lost", Left: ago(5 * time.Minute)}, {Node: "n5", Site: "lon", State: "stopped", Left: ago(50 * time.Hour)},
			{Node: "n6", Site: "lon", State: "removed", Left: ago(400 * time.Hour)},
		}
		g.Problems = []string{
			"znode /zkelectd/lost/roster is damaged: members that are lost are not shown; the elector writes it anew",
			"n3 is not ready to lead: the child's program /usr/bin/billing does not exist ('zkelectd check' on that host)",
		}
		g.Passing = g.Problems[:1]
	})
	add("none", 3, func(p *pageState, g *status.Group) {
		g.State, g.Leader, g.Site, g.Term, g.Since, g.API, g.Cause, g.Reason, p.heir = "NONE", "", "", 0, nil, "", "", "", ""
		for i := range g.Members {
			g.Members[i].Roles, g.Members[i].Eligible = []string{}, "excluded, strike 2: the child did not become ready"
		}
		g.NoLeader = "n1, n2, n3: excluded, strike 2: the child did not become ready"
		g.Problems = []string{"nobody leads: " + g.NoLeader}
		g.Exclusions = []cluster.Exclusion{{Node: "n1", Strikes: 2, For: cluster.Duration(10 * time.Minute), Reason: "the child did not become ready", Time: *ago(4 * time.Minute)}}
	})
	add("takeover", 4, func(p *pageState, g *status.Group) {
		g.Cause, g.Reason, g.Deputies = "silent", "n1 is silent: it has not renewed its lease for 3.7s", []string{"n3", "n4"}
		g.State, g.Leader, g.Since, p.heir = "PROGRESS", "n2", ago(2*time.Second), ""
		g.Members[0].Roles, g.Members[1].Roles = []string{}, []string{"candidate"}
		g.Waiting = "waits 2.1s for the lease of n1"
	})
	add("alone", 1, func(p *pageState, g *status.Group) {
		g.Problems, p.heir = []string{"nobody could take over from n1"}, ""
	})
	add("large", 500, func(_ *pageState, g *status.Group) {
		for i := range g.Members {
			if i%50 == 49 {
				g.Members[i].Eligible = "unhealthy: the disk is full"
			}
		}
		g.Expected = 502
		g.Absent = []status.AbsentMember{{Node: "n501", Site: "waw", State: "lost", Left: ago(3 * time.Hour)}, {Node: "n502", Site: "waw", State: "lost", Left: ago(3 * 24 * time.Hour)}}
	})
	for i := range slotStates {
		add(fmt.Sprintf("ingest/%d", i), 6, func(_ *pageState, g *status.Group) { slotState(i, g) })
	}
	return all
}

const slotStates = 12

// slotState makes a group of six nodes a slot of one. Slot 4 has no leader.
func slotState(i int, g *status.Group) {
	g.Slot, g.Slots = fmt.Sprint(i), slotStates
	g.Members[0].Roles = []string{}
	if g.State, g.Leader = "NONE", ""; i != 4 {
		g.State, g.Leader = "READY", g.Members[i%6].Node
		g.Members[i%6].Roles = []string{"leader"}
	} else {
		g.Problems = []string{"nobody leads: every member leads as many slots as it may"}
	}
}

// serveStates serves groups, and returns the address.
func serveStates(t *testing.T, states map[string]*pageState) string {
	t.Helper()
	var all []*web.Group
	for name, p := range states {
		all = append(all, p.serve(name))
	}
	slices.SortFunc(all, func(a, b *web.Group) int { return strings.Compare(a.Name, b.Name) })
	server := httptest.NewServer(web.New(web.Options{Node: "n1", Groups: func() []*web.Group { return all }}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return strings.TrimPrefix(server.URL, "http://")
}

// visit opens the page of a group in the same tab.
func (t *tab) visit(addr, name string) {
	t.f.t.Helper()
	t.do(chromedp.Navigate("http://" + addr + "/?group=" + name))
	t.until("it is live", live)
}

// Every state of a group is shown as what it is, fits on a phone, and can be read in both color schemes.
func TestStatesInABrowser(t *testing.T) {
	t.Parallel()
	addr := serveStates(t, pageStates())
	p := (&fleet{t: t}).open(addr)
	p.emulate("prefers-reduced-motion", "reduce")
	for _, c := range []struct{ name, strip, level string }{ // strip is a regular expression, as time passes
		{"steady", "n1 leads·4 can take over", "good"},
		{"paused", `n1 leads·4 can take over·paused 4\d min, 1 h \d\d min left`, "good"},
		{"moved", `n1 leads·3 can take over·moved to n1 3 h( \d min)?`, "good"},
		{"lost", "n1 leads·2 can take over·lost: n4·1 problem to act on", "warn"},
		{"none", "CRITICAL: no leader.*·No leader·nobody can lead·1 problem to act on", "bad"},
		{"takeover", "n2 takes over·3 can take over", "warn"},
		{"alone", "n1 leads·nobody can take over·1 problem to act on", "warn"},
		{"large", "n1 leads·489 can take over·lost: n501, n502", "warn"},
		{"ingest/4", "CRITICAL: no leader.*·No leader·6 can lead·1 problem to act on", "bad"},
	} {
		p.visit(addr, c.name)
		p.until(c.name+": "+c.strip, fmt.Sprintf("[...document.querySelectorAll('#summary .part')].map((e) => e.textContent).join('·').match(/^%s$/) !== null && document.querySelector('#summary').className === %q", c.strip, c.level))
		if c.name == "takeover" {
			p.shows("#leader", "n3, n4 (to replace n2 if it does not renew its lease)")
			p.shows("#leader", "n1 is silent: it has not renewed its lease for 3.7s")
		}
		if c.name == "moved" {
			p.shows("#leader .reasons", longValue)
		}
		if c.name == "large" {
			continue // TestAccessibilityInABrowser checks a large group
		}
		p.do(chromedp.EmulateViewport(360, 800))
		p.until(c.name+" fits on a phone", "document.documentElement.scrollWidth <= 360")
		for _, scheme := range []string{"dark", "light"} {
			p.emulate("prefers-color-scheme", scheme)
			if faint := evaluate[[]string](p, fmt.Sprintf(faintText, "")); len(faint) > 0 {
				t.Errorf("%s: the contrast is too low in the %s scheme: %q", c.name, scheme, faint)
			}
		}
	}
	p.visit(addr, "paused")
	p.until("it is paused", "document.querySelector('#summary').innerText.includes('paused')")
	p.advanceClock()
	evaluate[int](p, "window.fetch = () => Promise.reject(new TypeError('down')); 1")
	p.until("the strip is old", "document.querySelector('#summary').className === 'old' && document.querySelector('#summary').textContent.startsWith('Last seen: n1 leads')")
	p.checkConsole()
}

// Absent members are ghosts, problems say whether to act, times are relative, and nodes link to their pages.
func TestLostMembersInABrowser(t *testing.T) {
	t.Parallel()
	addr := serveStates(t, pageStates())
	p := (&fleet{t: t}).open(addr)
	p.visit(addr, "lost")
	p.shows("#members-count", "3 of 3 eligible, 3 of 5 expected, 1 lost")
	p.until("the ghosts are shown with their ages", `[...document.querySelectorAll('.ghost')].map((e) => e.querySelector('.node').innerText + ' ' + e.querySelector('.chip').innerText).join().match(/^n4 LOST \d+ min ago,n5 STOPPED 2 d 2 h ago,n6 REMOVED 16 d 16 h ago$/) !== null`)
	p.until("problems to act on come first", `[...document.querySelectorAll('#problems li')].map((e) => e.querySelector('.chip').innerText + ' ' + e.className).join() === 'act act,passes by itself passes'`)
	p.until("the time is in the tooltip", `/^[0-9:-]+/.test(document.querySelector('.ghost time').title)`)
	p.until("n2 links to its page", `document.querySelector('#members a.node').href === 'http://n2.example.com:7980/?group=lost'`)
	p.until("n1 does not link to itself", `document.querySelector('#members .leader .node').tagName === 'STRONG'`)
	p.until("the process is in the tooltip", `document.querySelector('#why tbody td:nth-child(2) a')?.title === 'n2.example.com, pid 1201, sequence 1, incarnation m0000000001'`)
	p.until("the words of a score are in the tooltip", `[...document.querySelectorAll('#why tbody tr:first-child td')].map((e) => e.innerText).join() === '1,n1 fra,200,100,1' && document.querySelector('#why tbody td:nth-child(3) span').title === 'site fra'`)
	p.shows("#leader .reasons", "n2 ams, if n1 is lost")
	p.until("the last failover is shown", `/3 h \d+ min ago: n2 → n1/.test(document.querySelector('#leader .reasons').innerText)`)
	p.shows("#leader .reasons", "Who led in the last 20 h")
	p.until("the bar shows who led", `document.querySelector('.reigns').getAttribute('aria-label').startsWith('Who led: n1 71 %, n2 23 %, n4 5 %, nobody')`)

	p.click("[aria-label='Forget n4']")
	p.shows("dialog", "n4 is no longer shown, or expected.")
	p.do(chromedp.EmulateViewport(360, 800))
	p.checkConsole()
}

// The dialog for a move proposes the next best member, shows the forecast of the daemon, and submits nothing without permission.
func TestMoveDialogInABrowser(t *testing.T) {
	t.Parallel()
	states := pageStates()
	// n3 is the next best: the order is not that of the names.
	members := states["moved"].group.Members
	members[1], members[2] = members[2], members[1]
	most := 9007199254740992.0
	states["moved"].answers = []cluster.RankedAnswer{{Node: "n1", Score: &most}, {Node: "n4", Why: "it has not answered"}}
	addr := serveStates(t, states)
	p := (&fleet{t: t}).open(addr)
	p.visit(addr, "moved")
	p.until("the ranking is shown", "document.querySelectorAll('#why tbody tr').length === 5")
	p.shows("#why-body", "The leader was elected by the answers of: n1 9007199254740992, n4 none (it has not answered).")
	p.click(".controls button")
	p.shows("dialog", "Leadership moves from n1 to n3, and stays there until the request ends.")
	p.shows("dialog .forecast", "n3 (ams) takes over")
	p.until("the best comes first, the ineligible last", `[...document.querySelectorAll('dialog optgroup:first-child option')].map((e) => e.text).join() === 'n3,n2,n4,n5 (not eligible)'`)
	p.until("it cannot be submitted", "document.querySelector('dialog .primary').disabled")
	p.shows("dialog .note", "This page may not submit requests")

	const choose = "(() => { const s = document.querySelector('dialog [data-act=destination]'); s.selectedIndex = 3; s.dispatchEvent(new Event('change')); return true; })()"
	evaluate[bool](p, choose)
	p.shows("dialog .forecast", "It would be refused: leadership cannot move to n5: cordoned by ann@host")
	if !evaluate[bool](p, "document.querySelector('dialog .check').getBoundingClientRect().top > document.querySelector('dialog .primary').getBoundingClientRect().bottom") {
		t.Error("what forces the request appears where somebody may be about to click")
	}
	p.click("dialog .check input")
	p.shows("dialog .forecast", "n5 (ams) takes over")
	p.emulate("prefers-color-scheme", "dark")
	if faint := evaluate[[]string](p, fmt.Sprintf(faintText, "")); len(faint) > 0 {
		t.Errorf("the contrast is too low: %q", faint)
	}
	p.do(chromedp.EmulateViewport(360, 800))
	p.until("it fits on a phone", "document.documentElement.scrollWidth <= 360 && document.querySelector('dialog').scrollWidth <= 360")
	p.checkConsole()
}

// A group with slots has a line for each slot, in their order, on the page of a slot and in the grid of the group.
func TestSlotsInABrowser(t *testing.T) {
	t.Parallel()
	addr := serveStates(t, pageStates())
	p := (&fleet{t: t}).open(addr + "/?group=ingest")
	p.until("the grid has a line for each slot", gridRows+" === 12 && document.querySelectorAll('#grid .row')[11].dataset.key === 'ingest/10'")
	p.shows("#group", "ingest, 12 slots")
	p.until("only its own hosts are shown", "document.querySelectorAll('#grid .head .host').length === 6")
	p.shows("#strip", "1 Without a leader")
	p.click("#grid [data-key='ingest/4'] a")
	p.until("the slots are shown in their order", `[...document.querySelectorAll('#slots tbody tr')].map((e) => e.querySelector('td').innerText).join() === '0,1,2,3,4,5,6,7,8,9,10,11'`)
	p.until("this is slot 4, without a leader", `document.querySelector('#slots [aria-current=page]').closest('tr').innerText.replace(/\s+/g, ' ') === '4 none no leader 1'`)
	p.click("#slots a[href='?group=ingest%2F5']")
	p.shows("#leader .name", "n6")
	p.shows("#all-groups", "All groups")
	p.checkConsole()
}

// In an outage the page of the leader says that it works on, by whose promises and since when; that of another member, what it has
// promised. The history marks a term that a person has declared to be over.
func TestFailsafeModeInABrowser(t *testing.T) {
	t.Parallel()
	states := pageStates()
	state := states["steady"]
	state.group.Failsafe = &status.GroupFailsafe{Members: []string{"n2", "n3"}}
	state.failsafe = &status.Failsafe{Enabled: true, TakesPart: true, Ready: true, Asks: []string{"n2", "n3"}}
	state.terms[3].Forced = &cluster.Forced{By: "ann@host", Reason: "rack 7 has burned down", Time: time.Now()}
	addr := serveStates(t, states)
	p := (&fleet{t: t}).open(addr)
	p.visit(addr, "steady")
	p.shows("#leader .reasons", "ready would work on without ZooKeeper, by promises of n2, n3")
	p.shows("#history .forced", "forced ann@host has declared that no work of this term is left: rack 7 has burned down")
	p.until("one term is marked", "document.querySelectorAll('#history .forced').length === 1")

	active := *state.failsafe
	active.Active, active.ActiveFor = true, cluster.Duration(3*time.Minute)
	state.outage(&active, errors.New("ZooKeeper does not answer"))
	p.shows("#banner", "Failsafe mode: n1 works on without ZooKeeper, by the promises of n2, n3.")
	p.until("it says since when", `/active ZooKeeper does not answer, and n1 works on because n2, n3 promised to let nobody take over, since 3 min ago/.test(document.querySelector('#leader .reasons').innerText)`)
	p.emulate("prefers-color-scheme", "dark")
	if faint := evaluate[[]string](p, fmt.Sprintf(faintText, "")); len(faint) > 0 {
		t.Errorf("the contrast is too low: %q", faint)
	}

	state.outage(&status.Failsafe{Enabled: true, TakesPart: true, Outage: true, BoundFor: cluster.Duration(time.Second)}, errors.New("ZooKeeper does not answer"))
	p.shows("#banner", "Failsafe mode: n1 has promised the leader to let nobody take over.")
	state.outage(nil, nil)
	p.until("it is live", live)
	p.shows("#leader .reasons", "on works on without ZooKeeper if all of these promise to let nobody take over: n2, n3")
	p.checkConsole()
}
