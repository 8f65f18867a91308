package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// result is what a command that acts prints: line by line as text, or with -o json one object, with these lines beside the facts.
type result struct {
	Messages []string `json:"messages"`

	in   io.Reader
	out  io.Writer
	err  io.Writer
	json bool
}

// result returns the result of a command with the flag -o.
func (c *command) result(output *string) result {
	return result{Messages: []string{}, in: c.InOrStdin(), out: c.OutOrStdout(), err: c.ErrOrStderr(), json: *output == "json"}
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

// confirm makes a person type something, see [confirmTyped]. Nobody is asked where a program reads the output.
func (r *result) confirm(what, want, flag string) error {
	if r.json {
		return notConfirmed(flag)
	}
	return confirmTyped(r.in, r.out, what, want, flag)
}

// atTerminal reports whether a person at a terminal can be asked.
func (r *result) atTerminal() bool {
	f, ok := r.in.(*os.File)
	return ok && !r.json && isTerminal(f)
}

// ask asks a person to confirm something. flag is how a script does it.
func (r *result) ask(question, flag string) error {
	if !r.atTerminal() {
		return notConfirmed(flag)
	}
	if !answersYes(r.in, r.out, question) {
		return refuse("nothing was changed")
	}
	return nil
}

// finish prints the facts, which include the result, with -o json. If the command was refused, or has failed before it said anything,
// the error says everything.
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
