package cli

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// On a terminal the status is drawn in place, fits the window, and says since when it is not live.
func TestStatusIsDrawnInPlace(t *testing.T) {
	user, terminal := terminal(t)
	if err := unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 60, Row: 6}); err != nil {
		t.Fatal(err)
	}
	d := newRedraw(terminal, func(n int) string {
		return "Leader   n1\nWhy      " + strings.Repeat("because ", n) + "\nn1  dc1\nn2  dc1\nn3  dc2\nn4  dc2\n"
	})
	err := errors.Join(d.show(9), d.refresh())
	d.lost(time.Now().Add(-5*time.Second), errors.New("no server answers"))
	err = errors.Join(err, d.resumed(time.Now(), time.Now()), d.show(1))
	d.end()
	if err = errors.Join(err, terminal.Close()); err != nil {
		t.Fatal(err)
	}
	seen, err := io.ReadAll(user) // ends with an error, as the other end is closed
	screens := strings.Split(string(seen), clearScreen)
	if len(screens) != 5 { // what precedes the first of four tables
		t.Fatalf("%d screens, %v: %q", len(screens), err, seen)
	}
	first, lost, again := screens[1], screens[3], screens[4]
	if !strings.HasPrefix(first, "live at ") || strings.Count(first, "\n") >= 6 || !strings.Contains(first, "more lines: make the window larger") || first[:8] != screens[2][:8] {
		t.Errorf("%q", first)
	}
	if !strings.HasPrefix(lost, "NOT LIVE since ") || !strings.Contains(lost, "(5s): no server answers; trying") {
		t.Errorf("%q", lost)
	}
	if !strings.HasPrefix(again, "live at ") || !strings.Contains(again, normalScreen) || !strings.Contains(again[strings.Index(again, normalScreen):], "n4  dc2") {
		t.Errorf("%q", again)
	}
}
