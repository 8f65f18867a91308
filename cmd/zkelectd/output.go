package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"zkelectd/internal/status"
)

func outputFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVarP(into, "output", "o", "table", "table or json")
}

func checkOutput(output string) error {
	if output != "table" && output != "json" {
		return fmt.Errorf("-o %s: want table or json", output)
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// plain keeps what others wrote into ZooKeeper from steering the terminal.
func plain(s string) string { return status.Plain(s) }

// plainText is plain for text of several lines.
func plainText(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return strings.Join(lines, "\n")
}

// colours of whole lines, by how they begin, which leaves columns alone; the first that fits.
var colours = []struct{ prefix, code string }{
	{"Leader   none", "31"}, {"Problem", "31"}, {"Leader", "32"}, {"Order", "33"}, {"Excluded", "33"}, {"Holding", "33"},
}

// coloured tells that w is a terminal whose user has not asked for NO_COLOR.
func coloured(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// paint colours text for people.
func paint(w io.Writer, text string) string {
	if !coloured(w) {
		return text
	}
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		for _, c := range colours {
			if body := strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, c.prefix) {
				lines[i] = "\x1b[" + c.code + "m" + body + "\x1b[0m" + line[len(body):]
				break
			}
		}
	}
	return strings.Join(lines, "")
}
