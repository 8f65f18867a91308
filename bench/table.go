package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// table collects the figures.
type table struct{ rows [][5]string }

// add adds a figure, what it is compared with, and its goal. It uses met only if there is a goal.
func (t *table) add(what, figure, against, goal string, met bool) {
	verdict := ""
	if goal != "" {
		verdict = "missed"
		if met {
			verdict = "met"
		}
	}
	t.rows = append(t.rows, [5]string{what, figure, against, goal, verdict})
	fmt.Printf("%-58s %s %s\n", what, figure, verdict)
}

func (t *table) print(w io.Writer) {
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FIGURE\tMEASURED\tAGAINST (SAME RUN)\tGOAL\t")
	for _, r := range t.rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", r[0], r[1], r[2], r[3], r[4])
	}
	tw.Flush()
}
