package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/forecast"
)

// explanation is the output of explain.
type explanation struct {
	Leader string `json:"leader,omitempty"`
	Site   string `json:"site,omitempty"`
	Term   int64  `json:"term,omitempty"`
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Preset is what ranks, Revision that of the policy, Circumstances what the ranking is made under.
	Preset        string                `json:"preset"`
	Revision      int64                 `json:"policy_revision"`
	Circumstances cluster.Circumstances `json:"circumstances"`
	Notes         []string              `json:"notes,omitempty"`
	Members       []explained           `json:"members"`
	// Holding says why a better member does not take over; Changes what would change the outcome.
	Holding string   `json:"holding,omitempty"`
	Changes []string `json:"changes"`
}

// explained is one member's place.
type explained struct {
	Rank     int       `json:"rank"` // 0 if it may not lead
	Node     string    `json:"node"`
	Site     string    `json:"site"`
	Refusals []refusal `json:"refusals,omitempty"`
	Scores   []score   `json:"scores"`
}

type refusal struct {
	Filter string `json:"filter"`
	Why    string `json:"why"`
}

type score struct {
	Ranker string   `json:"ranker"`
	Value  *float64 `json:"value"` // null if there is none
	Words  string   `json:"words,omitempty"`
}

func explainCommand() *cobra.Command {
	var term int64
	var output string
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show why the leader is the leader: every member, filter and ranker, and what would change it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withConfig(cmd, func(ctx context.Context, g group) error {
				if cmd.Flags().Changed("term") {
					return explainTerm(ctx, cmd.OutOrStdout(), g, term, output)
				}
				return explainNow(ctx, cmd.OutOrStdout(), g, output)
			})
		},
	}
	config.RegisterConnection(cmd.Flags())
	cmd.Flags().Int64Var(&term, "term", 0, "a past term, as in 'zkelectd history', with the verdicts of then")
	outputFlag(cmd, &output)
	return cmd
}

func explainNow(ctx context.Context, w io.Writer, g group, output string) error {
	snap, err := g.read(ctx)
	if err != nil {
		return err
	}
	q, err := g.question(snap)
	if err != nil {
		return err
	}
	e := explain(q)
	if output == "json" {
		return printJSON(w, e)
	}
	_, err = io.WriteString(w, paint(w, e.table()))
	return err
}

func explain(q forecast.Question) explanation {
	out := forecast.Run(q)
	r := out.Last.Ranking
	e := explanation{
		Preset: r.Preset, Revision: q.Policy.Revision, Circumstances: out.Last.Circumstances, Notes: append(r.Notes, out.Problems...),
		Members: []explained{}, Holding: out.Last.Holding, Changes: []string{},
	}
	if rec := q.Snapshot.Elected.Record; q.Snapshot.Elected.Readable() {
		e.Leader, e.Site, e.Term, e.Cause, e.Reason = rec.Node, rec.Site, rec.Term, string(rec.Cause), rec.Reason
	}
	for _, step := range out.Steps {
		e.Leader, e.Site, e.Term, e.Cause, e.Reason = step.Node, step.Site, step.Term, string(step.Cause), "about to be elected: "+step.Reason
	}
	for i, entry := range r.Entries {
		m := explained{Node: entry.Member.ID, Site: entry.Member.Node.Record.Site, Scores: []score{}}
		if entry.Allowed() {
			m.Rank = i + 1
		}
		for _, refused := range entry.Refusals {
			m.Refusals = append(m.Refusals, refusal{refused.Filter, refused.Why})
		}
		for _, s := range entry.Scores {
			m.Scores = append(m.Scores, score{s.Ranker, finite(s.Value), s.Words})
		}
		e.Members = append(e.Members, m)
	}
	e.Changes = changes(q, out)
	return e
}

// finite is nil for what JSON can't hold.
func finite(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}

// changes say what would have another member lead.
func changes(q forecast.Question, out forecast.Outcome) []string {
	r := out.Last.Ranking
	if !out.Led() {
		return []string{"nobody leads: " + elector.Refusals(r)}
	}
	var lines []string
	lost := q
	lost.Change.Without = []string{out.Leader.ID}
	if next := forecast.Run(lost); next.Led() {
		lines = append(lines, fmt.Sprintf("if %s is lost, %s (%s) leads", out.Leader.ID, next.Leader.ID, next.Leader.Node.Record.Site))
	} else {
		lines = append(lines, fmt.Sprintf("if %s is lost, NOBODY leads", out.Leader.ID))
	}
	after := false // the leader
	for _, entry := range r.Entries {
		switch {
		case entry.Member.Name == out.Leader.Name:
			after = true
		case entry.Allowed() && !after:
			lines = append(lines, fmt.Sprintf("%s comes before %s (%s); see what holds it back", entry.Member.ID, out.Leader.ID, r.Difference(entry.Member.Name, out.Leader.Name)))
		case !entry.Allowed():
			var why []string
			for _, refused := range entry.Refusals {
				why = append(why, refused.Why)
			}
			lines = append(lines, fmt.Sprintf("%s may not lead: %s", entry.Member.ID, strings.Join(why, "; ")))
		default:
			if d := r.Difference(out.Leader.Name, entry.Member.Name); d != "" {
				lines = append(lines, fmt.Sprintf("%s comes after %s: %s", entry.Member.ID, out.Leader.ID, d))
			}
		}
	}
	return lines
}

func (e explanation) table() string {
	var b strings.Builder
	if e.Leader == "" {
		fmt.Fprintln(&b, "Leader   none")
	} else {
		fmt.Fprintf(&b, "Leader   %s (site %s), term %d\n", plain(e.Leader), plain(e.Site), e.Term)
		fmt.Fprintf(&b, "Why      %s: %s\n", e.Cause, plain(e.Reason))
	}
	fmt.Fprintf(&b, "Policy   %s, revision %d\n", e.Preset, e.Revision)
	if c := e.Circumstances; c.Cause != "" {
		fmt.Fprintf(&b, "Ranked   after: %s", c.Cause)
		if c.Node != "" {
			fmt.Fprintf(&b, " of %s (%s)", plain(c.Node), plain(c.Site))
		}
		if len(c.Failed) > 0 {
			fmt.Fprintf(&b, "; failed sites: %s", plain(strings.Join(c.Failed, ", ")))
		}
		fmt.Fprintln(&b)
	}
	for _, note := range e.Notes {
		fmt.Fprintf(&b, "Problem  %s\n", plain(note))
	}
	if e.Holding != "" {
		fmt.Fprintf(&b, "Holding  %s\n", plain(e.Holding))
	}
	fmt.Fprintln(&b)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "RANK\tNODE\tSITE")
	columns := e.columns()
	for _, i := range columns {
		fmt.Fprint(t, "\t", strings.ToUpper(e.Members[0].Scores[i].Ranker))
	}
	fmt.Fprintln(t, "\tFILTERS")
	for _, m := range e.Members {
		rank, verdict := "-", "passed"
		if m.Rank > 0 {
			rank = fmt.Sprint(m.Rank)
		}
		var why []string
		for _, r := range m.Refusals {
			why = append(why, r.Filter+": "+r.Why)
		}
		if len(why) > 0 {
			verdict = strings.Join(why, "; ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s", rank, plain(m.Node), plain(m.Site))
		for _, i := range columns {
			words := m.Scores[i].Words
			if words == "" {
				words = "-"
			}
			fmt.Fprint(t, "\t", plain(words))
		}
		fmt.Fprintf(t, "\t%s\n", plain(verdict))
	}
	t.Flush()
	fmt.Fprintln(&b)
	for _, line := range e.Changes {
		fmt.Fprintf(&b, "- %s\n", plain(line))
	}
	return b.String()
}

// columns are the rankers that have something to say of any member.
func (e explanation) columns() []int {
	var list []int
	if len(e.Members) == 0 {
		return nil
	}
	for i := range e.Members[0].Scores {
		for _, m := range e.Members {
			if m.Scores[i].Words != "" {
				list = append(list, i)
				break
			}
		}
	}
	return list
}

func explainTerm(ctx context.Context, w io.Writer, g group, term int64, output string) error {
	h, err := readHistory(ctx, g, false)
	if err != nil {
		return err
	}
	t, ok := h.Find(term)
	if !ok {
		return fmt.Errorf("term %d is not in the history; 'zkelectd history -n %d' lists what is", term, cluster.MaxHistory)
	}
	if output == "json" {
		return printJSON(w, t)
	}
	fmt.Fprintf(w, "Leader   %s (site %s), term %d: %s\n", plain(t.Node), plain(t.Site), t.Term, plain(t.Outcome))
	fmt.Fprintf(w, "Why      %s: %s\n", t.Cause, plain(t.Reason))
	fmt.Fprintf(w, "Policy   revision %d, decided by %s at %s\n\n", t.PolicyRevision, plain(t.Elector), t.Time.Local().Format("2006-01-02 15:04:05"))
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "RANK\tNODE\tSITE\tVERDICT")
	for _, v := range t.Ranking {
		rank := "-"
		if v.Rank > 0 {
			rank = fmt.Sprint(v.Rank)
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\n", rank, plain(v.Node), plain(v.Site), plain(v.Why))
	}
	tab.Flush()
	if t.RankingOmitted > 0 {
		fmt.Fprintf(w, "and %d more\n", t.RankingOmitted)
	}
	return nil
}
