package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/operator/status"
)

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
	all = slices.DeleteFunc(slices.Clone(all), func(g groupStatus) bool {
		return g.LastRun != nil && g.Slot != "" && g.Slot != "0"
	})
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
	case g.LastRun != nil && (len(g.Members) == 0 || g.Slot != ""):
		return g.LastRun.check()
	}
	if severity, reasons := g.Condition().Judge(time.Now()); severity != status.SeverityOK {
		return checkResult{int(severity), strings.Join(reasons, "; ")}
	}
	return checkResult{checkOK, fmt.Sprintf("%s leads in term %d, %d of %d members are eligible", g.Leader, g.Term,
		g.Eligible, len(g.Members))}
}

// check returns the result for a job that no host runs or waits for, as a job is most of the time, and for one of
// exec --max.
func (r *lastRun) check() checkResult {
	c := r.cells()
	text := fmt.Sprintf("the last run of the job, %v on %v: %v", c[0], c[3], c[1])
	switch {
	case r.Error != "":
		return checkResult{checkUnknown, r.Error}
	case r.Running:
		return checkResult{checkOK, text}
	case r.ExitStatus == nil || *r.ExitStatus != 0:
		return checkResult{checkWarning, text}
	}
	return checkResult{checkOK, text}
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
	return fmt.Sprintf("groups=%d ready=%d members=%d eligible=%d problems=%d", len(all), ready, members,
		eligible, problems)
}
