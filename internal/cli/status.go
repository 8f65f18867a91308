package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/policy"
	"zkelectd/internal/store"
)

func statusCommand(c *command) {
	var watch, check bool
	c.Use = "status"
	c.Short = "Show the group: the leader, why it leads, and every member"
	c.Long = `Status shows a group: its leader, why it leads, every member, and anything unusual. If
zookeeper.root has several groups and none is named with -g, it prints one line for
each: the leader, how many members are eligible, and anything unusual. For the jobs of exec,
as with --root /jobs, the line is about the last run: when it started, how it ended, how long
it took, on which host, and when the next one may start by the --once-per of that run.

A group with slots has a line for each slot; -g NAME also shows which ones each member
leads, -g NAME/SLOT all about one slot.

With --check it prints one line, and exits as a monitoring plugin (Nagios, Icinga): 0 if each
group has a READY leader and an eligible standby, 1 for a warning (a takeover, a lost host, a
hard pause, nobody could take over, any other problem), 2 if a group has had no leader for longer
than a failover takes, nobody can lead it, or each member that could lead has failed, 3 if that
is not known.`
	output := c.outputFlag(outputWide)
	c.Flags().BoolVar(&watch, "watch", false, "follow the status until interrupted: on a terminal it is drawn in place, elsewhere printed again whenever it changes")
	c.Flags().BoolVar(&check, "check", false, "print one line with figures, and exit as a monitoring plugin: 0 ok, 1 warning, 2 critical, 3 unknown")
	c.MarkFlagsMutuallyExclusive("check", "watch")
	c.MarkFlagsMutuallyExclusive("check", "output")
	c.endless = &watch
	c.runMany = func(ctx context.Context, s selection, _ []string) error {
		g, err := s.only()
		shown := screen{w: c.OutOrStdout(), output: *output}
		switch {
		case check:
			return s.checkStatus(ctx, c.OutOrStdout())
		case watch && err == nil:
			return followStatus(ctx, g, &shown)
		case watch:
			return err
		case err != nil || g.manyLeaders():
			return s.showGroups(ctx, c.OutOrStdout(), *output)
		}
		view, err := g.view(ctx)
		if err != nil {
			return err
		}
		if run := g.readLastRun(ctx, view); run != nil {
			return shown.show(jobStatus{view, run})
		}
		return shown.show(view)
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		err := c.connectAndRun(allGroups, args)
		if err != nil && check && !errors.As(err, new(exitError)) {
			return checkFailed(c.OutOrStdout(), err)
		}
		return err
	}
}

// tabular is a view that people read as a table.
type tabular interface {
	Table() string
	WideTable() string
}

// followStatus shows the status of a group: on a terminal in place, else each one that differs from the one before. What it has read is
// viewed again each time: ages change.
func followStatus(ctx context.Context, g group, shown *screen) error {
	viewer := status.NewViewer(g.name, g.paths.Root)
	read := func(ctx context.Context, g group) (func() tabular, error) {
		all, err := g.readLeaders(ctx, true)
		if err != nil || !g.manyLeaders() {
			return func() tabular { return viewer.Group(all.Shared) }, err
		}
		return func() tabular { return groupsStatus{Root: g.paths.Root, Groups: g.views(all)} }, g.slotsError(all)
	}
	if terminal, ok := shown.w.(*os.File); ok && shown.output != "json" && os.Getenv("TERM") != "dumb" && isTerminal(terminal) {
		d := newRedraw(terminal, func(view func() tabular) string { return shown.table(view()) })
		defer d.end()
		return follow(ctx, g, time.Time{}, read, d)
	}
	return follow(ctx, g, time.Time{}, read, &statusDisplay{notices: notices{w: os.Stderr}, screen: shown})
}

// statusDisplay is the display of status --watch in a pipe or file.
type statusDisplay struct {
	notices
	screen *screen
}

func (d *statusDisplay) show(view func() tabular) error { return d.screen.show(view()) }

// resumed has the status follow even if it is that of before, in JSON after the gap.
func (d *statusDisplay) resumed(from, to time.Time) error {
	d.screen.last = ""
	err := d.notices.resumed(from, to)
	if d.screen.output == "json" {
		err = errors.Join(err, printJSON(d.screen.w, newGap(from, to)))
	}
	return err
}

// view returns the status of a group with one leader, with a forecast if the policy permits one, and with the lease of the leader.
func (g group) view(ctx context.Context) (status.Group, error) {
	q, err := g.submitter().Question(ctx)
	if err != nil {
		snap, err := g.read(ctx)
		return withLease(ctx, g.name, status.Of(g.name, g.paths.Root, snap)), err
	}
	q.Ask = nil // status must not start the ranking program
	return withLease(ctx, g.name, operator.WithForecast(status.Of(g.name, g.paths.Root, q.Snapshot), q)), nil
}

// screen prints views, each unless it equals the one before.
type screen struct {
	w      io.Writer
	output string
	last   string
}

// table returns the table that people have asked for.
func (s *screen) table(view tabular) string {
	if s.output == outputWide {
		return view.WideTable()
	}
	return view.Table()
}

func (s *screen) show(view tabular) error {
	var b strings.Builder
	if err := printJSON(&b, view); err != nil {
		return err
	}
	text := b.String() // a table also changes with the time
	if text == s.last {
		return nil
	}
	first := s.last == ""
	s.last = text
	if s.output != "json" {
		text = s.table(view)
	}
	if !first && s.output != "json" {
		fmt.Fprintln(s.w)
	}
	_, err := io.WriteString(s.w, colorize(s.w, text))
	return err
}

func leaderCommand(c *command) {
	var is, strict bool
	c.Use = "leader"
	c.Short = "Print the id of the READY leader; exit 0, 1 if there is none, or 2 on an error"
	c.Long = `Leader prints the id of the READY leader, and exits with 0, with 1 if there is none, and
with 2 on an error.

With --is it prints nothing as text, and exits with 0 if the node (--id, default this host) is the
READY leader, with 1 if not.

ZooKeeper names a leader whose daemon hangs until its session ends. With --strict the node's
own daemon must also confirm within a second that it leads this group, in this term and at this
root, and that its lease is not over; if it does not, the exit status is 1. Without --id or
--root it is asked at http.listen of this host's configuration, else at the address that it has
published, which must not use TLS.`
	output := c.outputFlag()
	config.RegisterNodeName(c.Flags())
	c.Flags().BoolVar(&is, "is", false, "exit 0 if the node is the READY leader, 1 if not")
	c.Flags().BoolVar(&strict, "strict", false, "with --is: ask the leading daemon itself, and exit 1 if it does not confirm its lease")
	c.check = func([]string) error {
		named := c.Flags().Changed("id")
		if !is && (named || strict) {
			return errors.New("--id and --strict are for --is")
		}
		if is && !named && os.Getenv("ZKELECTD_NODE_ID") == "" {
			concernsHost(c.Command, "zookeeper.servers") // its id is in the configuration of this host
		}
		return nil
	}
	c.run = func(ctx context.Context, g group, _ []string) error {
		leader, err := g.readyLeader(ctx)
		switch {
		case err != nil:
			return err
		case is && leader.Leader != g.host.Config.Node.ID, leader.Leader == "":
			err = exitError{statusNo, nil}
		case strict:
			err = confirmLeader(ctx, !c.Flags().Changed("id") && !c.Flags().Changed("root"), g, leader)
		case !is && *output != "json":
			fmt.Fprintln(c.OutOrStdout(), printable(leader.Leader))
		}
		if *output != "json" || err != nil && exitStatus(err) != statusNo {
			return err
		}
		shown := shownLeader{Group: g.name, Root: g.paths.Root, Leader: leader.Leader, Site: leader.Site, Term: leader.Term}
		if is {
			shown.Node, shown.Leads = g.host.Config.Node.ID, new(err == nil)
		}
		return errors.Join(printJSON(c.OutOrStdout(), shown), err)
	}
}

// shownLeader is the output of leader.
type shownLeader struct {
	Group string `json:"group"`
	Root  string `json:"root"`
	// Leader is the READY leader, of Site and in Term; empty if there is none.
	Leader string `json:"leader,omitempty"`
	Site   string `json:"site,omitempty"`
	Term   int64  `json:"term,omitempty"`
	// Node is the one that --is asks about, and Leads whether it is the leader.
	Node  string `json:"node,omitempty"`
	Leads *bool  `json:"leads,omitempty"`
}

// readyLeader returns the status of the group if it has a READY leader, else a zero status.
func (g group) readyLeader(ctx context.Context) (leader status.Group, err error) {
	snap, err := g.read(ctx)
	if c := snap.Current; c.Readable() && c.Record.State == cluster.CurrentReady {
		leader = status.Of(g.name, g.paths.Root, snap)
	}
	// Without a record that can be read, the answer is not known. No other problem of the group matters.
	return leader, errors.Join(err, snap.Current.Err)
}

// groupsStatus is the output of status for several groups.
type groupsStatus struct {
	// Root is the zookeeper.root of the groups.
	Root   string        `json:"root"`
	Groups []groupStatus `json:"groups"`
}

// groupStatus is one of several groups.
type groupStatus struct {
	Name string `json:"group"`
	status.Group
	Kind cluster.GroupKind `json:"kind,omitempty"`
	// Eligible is how many members may lead under the policy in force.
	Eligible int `json:"eligible"`
	// Error is why the group cannot be shown; empty if it can.
	Error string `json:"error,omitempty"`
	// LastRun is that of the job, if the group is that of a job of exec.
	LastRun *lastRun `json:"last_run,omitempty"`

	joined bool // a daemon has joined the group
}

// readsAtOnce bounds how many groups a command reads at once.
const readsAtOnce = 16

// each calls f for every group, several at a time.
func (s selection) each(ctx context.Context, f func(ctx context.Context, i int, g group)) {
	var all errgroup.Group
	all.SetLimit(readsAtOnce)
	for i, g := range s.groups {
		all.Go(func() error {
			f(ctx, i, g)
			return nil
		})
	}
	_ = all.Wait() // f has no error
}

// summaries returns the status of each group, and of each slot.
func (s selection) summaries(ctx context.Context) []groupStatus {
	summaries := make([][]groupStatus, len(s.groups))
	s.each(ctx, func(ctx context.Context, i int, g group) {
		summaries[i] = g.summaries(ctx)
	})
	return slices.Concat(summaries...)
}

// showGroups prints one line for each group or slot. It fails if one can't be shown.
func (s selection) showGroups(ctx context.Context, w io.Writer, output string) error {
	all := groupsStatus{Root: cmp.Or(s.base, s.groups[0].paths.Root), Groups: s.summaries(ctx)}
	var bad []string
	for _, g := range all.Groups {
		if g.Error != "" && g.joined {
			bad = append(bad, g.Name)
		}
	}
	shown := screen{w: w, output: output}
	err := shown.show(all)
	if len(bad) > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d groups cannot be shown: %s", len(bad), len(all.Groups), some(bad)))
	}
	return err
}

// readLeaders reads the group, or all its slots. With watch, it sets watches.
func (g group) readLeaders(ctx context.Context, watch bool) (operator.Leaders, error) {
	ctx, cancel := withAnswerTimeout(ctx)
	defer cancel()
	return operator.ReadLeaders(ctx, g.session, g.name, g.paths, g.manyLeaders(), watch)
}

// summaries returns the status of the group, or of each of its slots; only one with an error if it cannot be read.
func (g group) summaries(ctx context.Context) []groupStatus {
	var read operator.Leaders
	err := g.err
	if err == nil {
		read, err = g.readLeaders(ctx, false)
	}
	if err == nil {
		err = g.slotsError(read)
	}
	if err != nil {
		none := status.Group{Name: cluster.GroupOf(g.name), Root: g.paths.Root, State: status.StateNone, Members: []status.Member{}}
		return []groupStatus{{Name: g.name, Kind: g.kind, Group: none, Error: err.Error(), joined: !operator.NotAffected(err) && !errors.Is(err, store.ErrNoGroup)}}
	}
	views := g.views(read)
	if !g.manyLeaders() {
		views[0].LastRun = g.readLastRun(ctx, views[0].Group)
	}
	return views
}

// slotsError returns an error if it is not known which slots a group has, or if it has none yet.
func (g group) slotsError(read operator.Leaders) error {
	record := read.Shared.Slots
	switch {
	case len(read.Snapshots) > 0:
		return nil
	case record.Err == nil:
		return notCreated(g.host, g.name, g.paths.Root)
	case record.Newer() != nil:
		return fmt.Errorf("%w: until then no slot gets another leader; leaders keep working", record.Err)
	case errors.Is(record.Err, cluster.ErrNoSlots):
		return record.Err
	}
	return fmt.Errorf("%w: the elector writes it again; if no daemon runs, start one", record.Err)
}

// views returns the view of each leader, with a forecast if the policy permits one.
func (g group) views(read operator.Leaders) []groupStatus {
	q, err := read.Question(g.cfg, "", nil, new(policy.Cache))
	all := make([]groupStatus, len(read.Snapshots))
	for i, s := range read.Snapshots {
		view := status.Of(g.name, g.paths.Root, s)
		if err == nil {
			view = operator.WithForecast(view, q.Leaders()[i])
		}
		if drift := operator.SlotsDrift(read.Name, g.cfg.Slots, s.Slots); i == 0 && drift != "" {
			view.Problems = append(view.Problems, drift)
		}
		all[i] = groupStatus{Name: cluster.SlotName(read.Name, s.Slot), Group: view, Kind: g.kind, Eligible: view.EligibleMembers(), joined: true}
	}
	return all
}

// Table implements tabular.
func (all groupsStatus) Table() string { return all.table(false) }

// WideTable implements tabular.
func (all groupsStatus) WideTable() string { return all.table(true) }

// table returns one line for each group; wide has columns for their roots, too.
func (all groupsStatus) table(wide bool) string {
	var b strings.Builder
	var jobs []groupStatus
	all.Groups = slices.Clone(all.Groups)
	all.Groups = slices.DeleteFunc(all.Groups, func(g groupStatus) bool {
		if g.LastRun != nil {
			jobs = append(jobs, g)
		}
		return g.LastRun != nil
	})
	if len(jobs) > 0 {
		writeJobs(&b, jobs)
		if len(all.Groups) == 0 {
			return b.String()
		}
		fmt.Fprintln(&b)
	}
	head := []any{"GROUP"}
	if wide {
		head = append(head, "ROOT", "KIND")
	}
	t := newTable(&b, append(head, "LEADER", "SITE", "TERM", "SINCE", "ELIGIBLE", "NOTES")...)
	ready := 0
	var before []string
	for _, g := range all.Groups {
		if g.State == string(cluster.CurrentReady) {
			ready++
		}
		term, since := "-", "-"
		if g.Term > 0 {
			term = fmt.Sprint(g.Term)
		}
		if g.Since != nil {
			since = g.Since.Local().Format(time.DateTime)
		}
		cells := []any{g.Name}
		if wide {
			cells = append(cells, g.Root, g.Kind)
		}
		eligible := fmt.Sprintf("%d/%d", g.Eligible, max(len(g.Members), g.Expected))
		notes := g.notes()
		if g.Slot == "0" {
			before = notes
		} else if g.Slot != "" {
			notes = slices.DeleteFunc(notes, func(note string) bool { return slices.Contains(before, note) }) // what all slots share
		}
		t.row(append(cells, g.leader(), dash(g.Site), term, since, eligible, strings.Join(notes, "; "))...)
	}
	t.Flush()
	fmt.Fprintf(&b, "\n%d of %d groups have a READY leader\n", ready, len(all.Groups))
	if len(all.Groups) > 0 && all.Groups[0].Slot != "" && all.Groups[0].Root == all.Root {
		all.writeMembers(&b, all.Groups[0].Group)
	}
	return b.String()
}

// writeMembers writes which slots of the group each member leads. A spare can lead, but leads none.
func (all groupsStatus) writeMembers(w io.Writer, g status.Group) {
	fmt.Fprintln(w)
	t := newTable(w, "NODE", "SITE", "LEADS", "SLOTS")
	for _, m := range g.Members {
		var slots []string
		for _, slot := range all.Groups {
			if slot.Leader == m.Node {
				slots = append(slots, slot.Slot)
			}
		}
		text := strings.Join(slots, ",")
		if text == "" && m.IsEligible() {
			text = "spare"
		}
		t.row(m.Node, m.Site, len(slots), dash(text))
	}
	for _, m := range g.Absent {
		t.row(m.Node, m.Site, "-", m.StateAt(time.Now()))
	}
	t.Flush()
}

// leader describes the leader, and whether it is not READY.
func (g groupStatus) leader() string {
	switch g.State {
	case status.StateNone:
		return "none"
	case string(cluster.CurrentReady):
		return g.Leader
	case string(cluster.CurrentProgress):
		return g.Leader + " (taking over)"
	}
	return g.Leader + " (elected)"
}

// notes returns what is unusual about the group.
func (g groupStatus) notes() []string {
	var all []string
	for _, text := range []string{g.Error, g.Waiting, g.Next, g.Blocked, g.NoLeader} {
		if text != "" {
			all = append(all, text)
		}
	}
	for _, r := range g.Requests {
		all = append(all, r.String())
	}
	if lost := status.Lost(g.Absent); len(lost) > 0 {
		all = append(all, "lost: "+strings.Join(lost, ", "))
	}
	return append(all, g.Problems...)
}

// The exit statuses of status --check, which are those of monitoring plugins.
const (
	checkOK = iota
	checkWarning
	checkCritical
	checkUnknown
)

var checkNames = []string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}

// checkOrder ranks the results of several groups: the one that comes last counts.
var checkOrder = []int{checkOK, checkWarning, checkUnknown, checkCritical}

// checkResult is the result of status --check.
type checkResult struct {
	status int
	text   string
}

// checkStatus prints one line about the groups, and returns an error with the exit status of a monitoring plugin.
func (s selection) checkStatus(ctx context.Context, w io.Writer) error {
	all := s.summaries(ctx)
	result := checkSummaries(all)
	_, err := fmt.Fprintf(w, "%s | %s\n", result, checkFigures(all))
	if err != nil || result.status == checkOK {
		return err
	}
	return exitError{result.status, nil}
}

// checkFailed prints the line for an error, after which nothing is known.
func checkFailed(w io.Writer, err error) error {
	if _, err := fmt.Fprintln(w, checkResult{checkUnknown, err.Error()}); err != nil {
		return err
	}
	return exitError{checkUnknown, nil}
}

// String returns the result on one line, without the separator of the figures.
func (r checkResult) String() string {
	text := strings.ReplaceAll(strings.Join(strings.Fields(r.text), " "), "|", "/")
	return fmt.Sprintf("ZKELECTD %s - %s", checkNames[r.status], printable(text))
}

// checkSummaries returns the worst result, and says which groups have it.
func checkSummaries(all []groupStatus) checkResult {
	if len(all) == 0 {
		return checkResult{checkCritical, "there are no groups"}
	}
	if len(all) == 1 {
		return checkGroup(all[0])
	}
	by := make(map[int][]string)
	for _, g := range all {
		r := checkGroup(g)
		by[r.status] = append(by[r.status], fmt.Sprintf("%s (%s)", g.Name, r.text))
	}
	worst := checkOK
	for _, state := range checkOrder {
		if len(by[state]) > 0 {
			worst = state
		}
	}
	if worst == checkOK {
		return checkResult{checkOK, fmt.Sprintf("each of %d groups has a READY leader and an eligible standby", len(all))}
	}
	return checkResult{worst, fmt.Sprintf("%d of %d groups: %s", len(by[worst]), len(all), some(by[worst]))}
}

// checkGroup returns the result for one group.
func checkGroup(g groupStatus) checkResult {
	switch {
	case g.Error != "" && g.joined:
		return checkResult{checkUnknown, g.Error}
	case g.Error != "":
		return checkResult{checkCritical, "no leader: " + g.Error}
	}
	if severity, reasons := g.Condition().Judge(time.Now()); severity != status.SeverityOK {
		return checkResult{int(severity), strings.Join(reasons, "; ")}
	}
	return checkResult{checkOK, fmt.Sprintf("%s leads in term %d, %d of %d members are eligible", g.Leader, g.Term, g.Eligible, len(g.Members))}
}

// checkFigures returns the performance data: members and eligible are the least of any group.
func checkFigures(all []groupStatus) string {
	ready, members, eligible, problems := 0, 0, 0, 0
	for i, g := range all {
		if g.State == string(cluster.CurrentReady) {
			ready++
		}
		if i == 0 || len(g.Members) < members {
			members = len(g.Members)
		}
		if i == 0 || g.Eligible < eligible {
			eligible = g.Eligible
		}
		problems += len(g.Problems)
	}
	return fmt.Sprintf("groups=%d ready=%d members=%d eligible=%d problems=%d", len(all), ready, members, eligible, problems)
}

// leaseTimeout bounds the request to the leader: status is about the group, and must not wait for one host.
const leaseTimeout = time.Second

// withLease adds what only the leader knows, by asking it: the remaining time of the lease. ZooKeeper goes on naming a leader whose
// daemon hangs until its session ends, so no answer means that the lease is not confirmed, and no more than that.
func withLease(ctx context.Context, name string, g status.Group) status.Group {
	answer, err := askLeader(ctx, name, g)
	switch {
	case errors.Is(err, errNotAsked):
		return g
	case err != nil:
		return g.Unconfirmed(err.Error())
	}
	return g.WithLease(bytes.NewReader(answer))
}

// errNotAsked is the error of [askLeader] if this host cannot ask the leader, so that no answer means nothing.
var errNotAsked = errors.New("this host cannot ask the leader")

// askLeader returns the leader's answer to the probe /leader. A leader that serves TLS (https://) is not asked: a command does not
// know which CA to trust. The address comes from ZooKeeper, so it is used only if the leader's own registration has it as well, and
// redirects are not followed.
func askLeader(ctx context.Context, name string, g status.Group) ([]byte, error) {
	host, port, err := net.SplitHostPort(g.API)
	switch {
	case g.API == "":
		return nil, fmt.Errorf("%w: %s has no http.listen that other hosts can reach", errNotAsked, g.Leader)
	case strings.HasPrefix(g.API, "https://"):
		return nil, fmt.Errorf("%w: the HTTP API of %s uses TLS", errNotAsked, g.Leader)
	case err != nil || port == "0" || g.APIHost == "":
		return nil, fmt.Errorf("%w: the registration of %s does not have the address %s", errNotAsked, g.Leader, g.API)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = g.APIHost
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	// The name is not that of a daemon with a single group if hosts have given it another one.
	for _, path := range []string{"/v1/groups/" + url.PathEscape(name) + "/leader", "/leader"} {
		answer, code, err := getFromLeader(ctx, "http://"+net.JoinHostPort(host, port)+path, g.APIHost)
		var request *url.Error
		switch {
		case errors.Is(err, errNotAsked):
			return nil, err
		case ctx.Err() != nil:
			return nil, fmt.Errorf("no answer from %s at %s for %s", g.Leader, g.API, leaseTimeout)
		case errors.As(err, &request):
			return nil, fmt.Errorf("no answer from %s at %s: %w", g.Leader, g.API, request.Err)
		case code == http.StatusOK || code == http.StatusServiceUnavailable:
			return answer, err
		case code != http.StatusNotFound:
			return nil, fmt.Errorf("%s answers with status %d", g.API, code)
		}
	}
	return nil, fmt.Errorf("the server at %s does not know the group", g.API)
}

// maxLeaderAnswer bounds the answer of a leader, in bytes.
const maxLeaderAnswer = 1 << 16

func getFromLeader(ctx context.Context, target, host string) (body []byte, code int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errNotAsked, err)
	}
	resp, err := leaderClient(host).Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxLeaderAnswer))
	return body, resp.StatusCode, err
}

// confirmLeader returns nil if the daemon that leads confirms that its lease is not over. own is set if the configuration of this host is its own.
func confirmLeader(ctx context.Context, own bool, g group, leader status.Group) error {
	h := g.host
	no := func(reason string) error {
		return exitError{statusNo, fmt.Errorf("the lease of %s is not confirmed: %s", printable(leader.Leader), printable(reason))}
	}
	confirms := func(answer []byte) error {
		if reason := leader.WithLease(bytes.NewReader(answer)).LeaseUnconfirmed; reason != "" {
			return no(reason)
		}
		return nil
	}
	e, err := endpointOf(h)
	if own && err != nil {
		return exitError{statusError, err}
	}
	if own && e.Addr != "" {
		ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
		defer cancel()
		name, file := g.name, "/v1/groups/"+url.PathEscape(g.name)+"/leader"
		if h.Dir == "" {
			name, file = "", "/leader"
		}
		if err := e.Probe(ctx, "/leader", name); err != nil {
			return no(err.Error())
		}
		answer, err := e.Read(ctx, file, maxLeaderAnswer) // the daemon may be of another group, whose term differs
		if err != nil {
			return no(err.Error())
		}
		return confirms(answer)
	}
	answer, err := askLeader(ctx, g.name, leader)
	switch {
	case errors.Is(err, errNotAsked):
		return exitError{statusError, err}
	case err != nil:
		return no(err.Error())
	}
	return confirms(answer)
}

// leaderClient returns a client for the leader on a host. It connects directly, without a proxy.
func leaderClient(host string) *http.Client {
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return checkLeaderAddress(address, host) }}
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// checkLeaderAddress refuses an address that the leader on a host can't have. Loopback addresses have services that trust
// local users, so they are refused unless the leader runs on this host; link-local addresses have a cloud's metadata.
func checkLeaderAddress(address, host string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	here, err := os.Hostname()
	if err != nil || (ip.IsLoopback() && host != here) || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return fmt.Errorf("%w: %s is not an address of %s", errNotAsked, ip, host)
	}
	return nil
}
