package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

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
		return refuse("nothing was done: confirm it at a terminal, or add %s", flag)
	}
	fmt.Fprintf(w, "Type %s, %s, to go on: ", what, printable(want))
	answer, _ := bufio.NewReader(in).ReadString('\n') // an error is no confirmation
	if strings.TrimSpace(answer) != want {
		return refuse("nothing was done: it must be %s", want)
	}
	return nil
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
