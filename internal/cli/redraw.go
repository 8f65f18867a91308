package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

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
