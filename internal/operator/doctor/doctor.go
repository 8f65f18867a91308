// Package doctor judges what was found on a host, in ZooKeeper and in the groups: each check is ok, a warning or a failure, with what
// to do. It looks at nothing itself: the caller gathers [Facts]. What could not be looked at is never ok.
package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Result is the result of a check.
type Result string

// The results. Fail is for what does not work, Warn for what works and may not later, and for what could not be checked.
const (
	OK   Result = "ok"
	Warn Result = "warn"
	Fail Result = "fail"
)

// Finding is the result of one check.
type Finding struct {
	Result Result `json:"result"`
	// Check is what was checked, Object which of several: a server, a group or a directory; empty if there is one only.
	Check  string `json:"check"`
	Object string `json:"object,omitempty"`
	// Seen is what was seen, Advice what to do; nothing if Advice is empty.
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"`
}

// What returns the check with its object.
func (f Finding) What() string { return strings.TrimSpace(f.Check + " " + f.Object) }

// String returns what was seen and what to do.
func (f Finding) String() string {
	if f.Advice == "" {
		return f.Seen
	}
	return f.Seen + "; " + f.Advice
}

// Diagnose returns the findings, those about the whole host and about ZooKeeper first.
func Diagnose(f Facts) []Finding {
	all := f.Config.findings()
	if len(f.Config.Errors) > 0 && !f.Config.Usable {
		return append(all, unknown("other checks", "", errors.New("the configuration is invalid"), "correct the configuration, and run this again"))
	}
	var servers []Server
	for _, s := range f.Servers {
		if s.isReachedOtherwise(f.Servers) {
			all = append(all, Finding{Warn, "server", s.Name, "cannot be reached from here: " + s.Err.Error(),
				s.Host + " serves sessions at another address; remove this one from the name, unless other hosts need it"})
			continue
		}
		servers, all = append(servers, s), append(all, s.finding(f.Session.Asked))
	}
	all = append(all, ensemble(servers)...)
	all = append(all, f.Session.finding(), f.Write.finding(f.Session.Err), f.Write.clock(), f.clocks())
	all = append(all, f.Daemon.findings(f.Version)...)
	all = append(all, f.Host.findings()...)
	for _, d := range f.Directories {
		all = append(all, d.finding())
	}
	for _, g := range f.Groups {
		all = append(all, g.findings(f.Session.Base, f.Version)...)
	}
	return all
}

// Worst returns the worst result of the findings.
func Worst(all []Finding) Result {
	worst := OK
	for _, f := range all {
		if f.Result == Fail || f.Result == Warn && worst == OK {
			worst = f.Result
		}
	}
	return worst
}

func good(check, object, format string, args ...any) Finding {
	return Finding{Result: OK, Check: check, Object: object, Seen: fmt.Sprintf(format, args...)}
}

// unknown is the finding for what could not be looked at.
func unknown(check, object string, err error, advice string) Finding {
	return Finding{Result: Warn, Check: check, Object: object, Seen: "could not be checked because " + err.Error(), Advice: advice}
}

// round makes a measured time readable.
func round(d time.Duration) time.Duration {
	switch abs := max(d, -d); {
	case abs >= 10*time.Second:
		return d.Round(time.Second)
	case abs >= time.Second:
		return d.Round(100 * time.Millisecond)
	case abs >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// listed names the first of many.
func listed(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// plural returns a number with the word for one or for several.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// orUnknown returns a text for what may be empty.
func orUnknown(text string) string { return cmp.Or(text, "unknown") }
