package cli

import (
	"bufio"
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

// confirmTyped makes a person at a terminal type something that shows that this is meant. what describes it, and flag is how a script
// confirms it.
func confirmTyped(in io.Reader, w io.Writer, what, want, flag string) error {
	if f, ok := in.(*os.File); !ok || !isTerminal(f) {
		return notConfirmed(flag)
	}
	fmt.Fprintf(w, "Type %s, %s, to go on: ", what, printable(want))
	answer, _ := bufio.NewReader(in).ReadString('\n') // an error is no confirmation
	if strings.TrimSpace(answer) != want {
		return refuse("nothing was done: it must be %s", want)
	}
	return nil
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

// redraw is the display of status --watch on a terminal: it draws the table in place, every second, and says since when it is not live.
type redraw[T any] struct {
	terminal *os.File
	table    func(T) string
	last     *T
	live     time.Time // when last was read
	problem  string    // why nothing can be read, empty if it can
}

// Control sequences of terminals (ECMA-48, xterm).
const (
	alternateScreen = "\x1b[?1049h\x1b[?7l" // lines that are too long are cut off
	normalScreen    = "\x1b[?7h\x1b[?1049l"
	home            = "\x1b[H"
	eraseLine       = "\x1b[K"
	eraseBelow      = "\x1b[J"
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
		text = r.text(0)
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
	lines := strings.SplitAfter(r.heading(columns)+"\n"+r.text(columns), "\n")
	if rows > 1 && len(lines) > rows { // SplitAfter ends with an empty line
		hidden := len(lines) - rows + 1
		lines = append(lines[:rows-2], fmt.Sprintf("… and %d more lines: make the window higher", hidden))
	}
	text := strings.ReplaceAll(strings.Join(lines, ""), "\n", eraseLine+"\n")
	_, err := io.WriteString(r.terminal, home+text+eraseLine+eraseBelow)
	return err
}

// heading says whether the table is live.
func (r *redraw[T]) heading(columns int) string {
	text := "live at " + time.Now().Format(clockFormat) + "; Ctrl-C ends"
	if r.problem != "" {
		text = fmt.Sprintf("NOT LIVE since %s (%s): %s; trying again", r.live.Format(clockFormat), time.Since(r.live).Round(time.Second), r.problem)
	}
	return wrap(text, columns)
}

func (r *redraw[T]) text(columns int) string {
	return colorize(r.terminal, wrap(r.table(*r.last), columns))
}

// sizeOf returns the size of a terminal; 0 if it is not known.
func sizeOf(terminal *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// wrap breaks the lines that begin with a label, and those of a sentence, between words; a command in quotes is not broken. Rows of
// tables, which begin with a space or have several columns, stay as they are.
func wrap(text string, columns int) string {
	const least = 40
	if columns < least {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if utf8.RuneCountInString(line) > columns {
			lines[i] = wrapLine(line, columns)
		}
	}
	return strings.Join(lines, "\n")
}

func wrapLine(line string, columns int) string {
	const labels = len("Excluded ")
	indent := 0
	if label, text := line[:labels], line[labels:]; label[labels-1] == ' ' && !strings.ContainsAny(strings.TrimSpace(label), " '") && !strings.Contains(text, "  ") {
		indent = labels
	} else if label, rest, ok := strings.Cut(line, "  "); ok {
		text := strings.TrimLeft(rest, " ")
		if strings.Contains(label, " ") || strings.Contains(text, "  ") {
			return line // a row of a table
		}
		indent = utf8.RuneCountInString(line) - utf8.RuneCountInString(text)
	}
	var b strings.Builder
	b.WriteString(line[:indent])
	at := indent
	for i, word := range words(line[indent:]) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > columns:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// words splits a text at its spaces, but not within quotes.
func words(text string) []string {
	var all []string
	quoted := false
	for _, word := range strings.Split(text, " ") {
		if quoted {
			all[len(all)-1] += " " + word
		} else {
			all = append(all, word)
		}
		if odd := strings.Count(word, "'")%2 == 1; odd && (quoted || strings.HasPrefix(strings.TrimLeft(word, "("), "'")) { // not the host's
			quoted = !quoted
		}
	}
	return all
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
