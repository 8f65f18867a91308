package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
	"zkelectd/internal/operator/losses"
)

// checked is what check prints about a configuration without errors.
type checked struct {
	name      string // the group that was asked for; empty for all
	effective bool
	json      bool
	text      string          // the settings, or the list of the groups
	alone     map[string]bool // the groups in which no other member than this node may lead
}

// checkedConfig is the output of check with -o json.
type checkedConfig struct {
	Groups []checkedGroup `json:"groups"`
}

// checkedGroup says what becomes of a group after each loss.
type checkedGroup struct {
	Group  string        `json:"group"`
	Root   string        `json:"root"`
	Losses []losses.Loss `json:"losses"`
	// TakeoverTimeout is how long the start of the work may take before another member is tried.
	TakeoverTimeout cluster.Duration `json:"takeover_timeout"`
}

// printChecked prints the settings, and after those of a group what becomes of it after each loss; in JSON, only the latter, for all groups.
func printChecked(w io.Writer, h config.Host, c checked) error {
	var out checkedConfig
	for _, g := range h.Groups {
		if c.name != "" && g.Name != c.name {
			continue
		}
		one, err := checkedOf(g, c.alone[g.Name])
		if err != nil {
			return err
		}
		out.Groups = append(out.Groups, one)
	}
	if c.json {
		return printJSON(w, out)
	}
	if _, err := io.WriteString(w, c.text); err != nil || len(out.Groups) != 1 || h.Dir != "" && c.name == "" {
		return err
	}
	_, err := io.WriteString(w, lossesText(out.Groups[0]))
	return err
}

func checkedOf(g config.Group, alone bool) (checkedGroup, error) {
	session := g.Config.ZooKeeper.SessionTimeout
	base := g.Config.ZooKeeper.LeaseBase(session)
	b, err := cluster.NewBudget(base, g.Config.StopTimeout(base))
	if err != nil {
		return checkedGroup{}, err
	}
	return checkedGroup{
		Group: g.Name, Root: g.Config.ZooKeeper.Root, Losses: operator.Losses(g.Config, b.Granted(session), alone),
		TakeoverTimeout: cluster.Duration(g.Config.TakeoverTimeout()),
	}, nil
}

// lossesText returns the losses as comments, so that what check prints stays YAML.
func lossesText(g checkedGroup) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n# After a loss the next leader starts its work within the time below, if the servers grant a session timeout like the configured\n"+
		"# one. That start comes on top; a candidate that needs more than %s for it is replaced.\n", time.Duration(g.TakeoverTimeout))
	t := newTable(&b)
	for _, l := range g.Losses {
		why := l.Why
		if !l.Survived() {
			why = "NOT SURVIVED: " + why
		}
		t.row("# "+l.Kind.Words(), l.Time(), why)
	}
	t.Flush() // a strings.Builder does not fail
	return b.String()
}
