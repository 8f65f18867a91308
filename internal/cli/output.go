package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"zkelectd/internal/operator/status"
)

// outputValue is the value of the flag -o: one of a few words.
type outputValue struct {
	into  *string
	words []string
}

// outputFlag adds the flag -o, with more words than table and json where there are any.
func (c *command) outputFlag(more ...string) *string {
	into := new(string)
	*into = "table"
	words := slices.Concat([]string{"table"}, more, []string{"json"})
	c.Flags().VarP(outputValue{into, words}, "output", "o", strings.Join(words[:len(words)-1], ", ")+" or json")
	return into
}

// Set implements pflag.Value.
func (o outputValue) Set(text string) error {
	if !slices.Contains(o.words, text) {
		return fmt.Errorf("must be %s or json", strings.Join(o.words[:len(o.words)-1], ", "))
	}
	*o.into = text
	return nil
}

// String implements pflag.Value.
func (o outputValue) String() string {
	if o.into == nil {
		return ""
	}
	return *o.into
}

// Type implements pflag.Value.
func (outputValue) Type() string { return "string" }

// outputWide is the value of -o for a table with all columns, where there is one.
const outputWide = "wide"

func printJSON(w io.Writer, v any) error { return writeJSON(w, v, "  ") }

// printJSONLine prints an object on one line, for a sequence of objects.
func printJSONLine(w io.Writer, v any) error { return writeJSON(w, v, "") }

func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(status.PrintableJSON(b.Bytes()))
	return err
}

// table is a table with aligned columns. Its cells are made printable.
type table struct{ *tabwriter.Writer }

// newTable returns a table that is written with Flush. It has no heading if there are no cells.
func newTable(w io.Writer, head ...any) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

func (t table) row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(t, "\t")
		}
		fmt.Fprint(t, printable(fmt.Sprint(cell)))
	}
	fmt.Fprintln(t)
}

// dash returns a text, or a dash for none.
func dash(text string) string { return cmp.Or(text, "-") }

// printable escapes the terminal control sequences in text that others wrote to ZooKeeper.
func printable(s string) string { return status.Printable(s) }

// printableText is printable for text with several lines.
func printableText(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// lineColors are the colors of whole lines by their prefix; the first match counts. Columns are not affected.
var lineColors = []struct{ prefix, code string }{
	{"Leader   none", "31"}, {"Problem", "31"}, {"Leader", "32"}, {"Request", "33"}, {"Excluded", "33"}, {"Blocked", "33"},
}

// colored reports whether w is a terminal whose user has not set NO_COLOR.
func colored(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(f)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// notConfirmed is the error if nobody can be asked.
func notConfirmed(flag string) error {
	return refuse("nothing was done: confirm it at a terminal, or add %s", flag)
}

// colorize colors text if w is a terminal.
func colorize(w io.Writer, text string) string {
	if !colored(w) {
		return text
	}
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		for _, c := range lineColors {
			if body := strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, c.prefix) {
				lines[i] = "\x1b[" + c.code + "m" + body + "\x1b[0m" + line[len(body):]
				break
			}
		}
	}
	return strings.Join(lines, "")
}

// redraw is the display of status --watch on a terminal: it draws the table in place, every second, and says since when
// it is not live.
type redraw[T any] struct {
	terminal *os.File
	table    func(T) string
	last     *T
	live     time.Time // when last was read
	problem  string    // why nothing can be read, empty if it can
}

// Control sequences of terminals (ECMA-48, xterm).
const (
	alternateScreen = "\x1b[?1049h"
	normalScreen    = "\x1b[?1049l"
	clearScreen     = "\x1b[2J\x1b[H"
)

// newRedraw begins to draw. The caller must call end.
func newRedraw[T any](terminal *os.File, table func(T) string) *redraw[T] {
	io.WriteString(terminal, alternateScreen) //nolint:errcheck // the first draw reports it
	return &redraw[T]{terminal: terminal, table: table}
}

// end leaves what was drawn last on the normal screen.
func (r *redraw[T]) end() {
	text := ""
	if r.last != nil {
		text = colorize(r.terminal, r.table(*r.last))
	}
	io.WriteString(r.terminal, normalScreen+text) //nolint:errcheck // nobody looks any more
}

func (r *redraw[T]) show(v T) error {
	r.last, r.live = &v, time.Now()
	return r.refresh()
}

func (r *redraw[T]) lost(since time.Time, reason error) {
	r.live, r.problem = since, printable(reason.Error())
	r.refresh() //nolint:errcheck // the next call reports it
}

func (r *redraw[T]) resumed(_, to time.Time) error {
	r.live, r.problem = to, ""
	return nil
}

// refresh draws again: ages and countdowns have changed.
func (r *redraw[T]) refresh() error {
	if r.last == nil {
		return nil
	}
	columns, rows := sizeOf(r.terminal)
	text := fit(r.heading()+"\n"+r.table(*r.last), columns, rows)
	_, err := io.WriteString(r.terminal, clearScreen+colorize(r.terminal, text))
	return err
}

// heading says whether the table is live.
func (r *redraw[T]) heading() string {
	if r.problem != "" {
		return fmt.Sprintf("NOT LIVE since %s (%s): %s; trying again", r.live.Format(clockFormat),
			time.Since(r.live).Round(time.Second), r.problem)
	}
	return "live at " + time.Now().Format(clockFormat) + "; Ctrl-C ends"
}

// sizeOf returns the size of a terminal; 0 if it is not known.
func sizeOf(terminal *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// fit returns the lines that a terminal of a size has room for, with a line that says how many are hidden.
func fit(text string, columns, rows int) string {
	if columns < 1 || rows < 2 {
		return text
	}
	lines := strings.SplitAfter(text, "\n")
	used := 1 // the last row is for what is hidden
	for i, line := range lines {
		used += 1 + max(0, utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))-1)/columns
		if used > rows && i < len(lines)-1 {
			return strings.Join(lines[:i], "") + fmt.Sprintf("… and %d more lines: make the window larger", len(lines)-1-i)
		}
	}
	return text
}

// durationValue is a flag with a duration, which may have days.
type durationValue time.Duration

// durationFlag adds a flag with a duration, which may have days.
func durationFlag(c *command, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	c.Flags().Var((*durationValue)(into), name, usage)
}

var days = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)d(.*)$`)

// Set implements pflag.Value.
func (d *durationValue) Set(text string) error {
	rest, total := text, time.Duration(0)
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil || n > 36500 {
			return fmt.Errorf("%q: at most 36500 days", text)
		}
		if total, rest = time.Duration(n*24*float64(time.Hour)), m[2]; rest == "" {
			rest = "0s"
		}
	}
	v, err := time.ParseDuration(rest)
	if err != nil {
		return fmt.Errorf("%q is not a duration: write a number and a unit, as in 90s, 30m, 12h or 2d", text)
	}
	*d = durationValue(total + v)
	return nil
}

// String implements pflag.Value.
func (d *durationValue) String() string {
	if *d == 0 {
		return "0" // which the help does not show as a default
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (d *durationValue) Type() string { return "duration" }
