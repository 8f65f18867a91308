package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// result is what a command that acts prints: line by line as text, or with -o json one object, with these lines beside
// the facts.
type result struct {
	Messages []string `json:"messages"`

	in   io.Reader
	out  io.Writer
	err  io.Writer
	json bool
}

// result returns the result of a command with the flag -o.
func (c *command) result(output *string) result {
	return result{Messages: []string{}, in: c.InOrStdin(), out: c.OutOrStdout(), err: c.ErrOrStderr(),
		json: *output == "json"}
}

// say adds a line.
func (r *result) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if r.json {
		r.Messages = append(r.Messages, line)
		return
	}
	fmt.Fprintln(r.out, printable(line))
}

func (r *result) sayLines(lines []string) {
	for _, line := range lines {
		r.say("%s", line)
	}
}

// confirm makes a person at a terminal type something that shows that this is meant. what describes it, and flag is
// how a script confirms it. Nobody is asked where a program reads the output.
func (r *result) confirm(what, want, flag string) error {
	if !r.atTerminal() {
		return notConfirmed(flag)
	}
	if r.answer("Type %s, %s, to go on: ", what, printable(want)) != want {
		return refuse("nothing was done: it must be %s", want)
	}
	return nil
}

// ask asks a person at a terminal to confirm something. flag is how a script does it.
func (r *result) ask(question, flag string) error {
	if !r.atTerminal() {
		return notConfirmed(flag)
	}
	if strings.ToLower(r.answer("%s [y/N] ", question)) != "y" {
		return refuse("nothing was changed")
	}
	return nil
}

// atTerminal reports whether a person at a terminal can be asked.
func (r *result) atTerminal() bool {
	f, ok := r.in.(*os.File)
	return ok && !r.json && isTerminal(f)
}

// answer returns the line that a person answers.
func (r *result) answer(format string, args ...any) string {
	fmt.Fprintf(r.out, format, args...)
	line, _ := bufio.NewReader(r.in).ReadString('\n') // an error is no confirmation
	return strings.TrimSpace(line)
}

// finish prints the facts, which include the result, with -o json. If the command was refused, or has failed before it
// said anything, the error says everything.
func (r *result) finish(facts any, err error) error {
	if !r.json || err != nil && len(r.Messages) == 0 || exitStatus(err) == statusRefused {
		return err
	}
	return errors.Join(printJSON(r.out, facts), err)
}

// warn prints a warning.
func (r *result) warn(format string, args ...any) {
	fmt.Fprintln(r.err, "warning:", printable(fmt.Sprintf(format, args...)))
}
