package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator"
)

func policyEditCommand(c *command) {
	var yes, force bool
	c.Use = "edit"
	c.Short = "Change the policy in force in an editor"
	c.Long = `Edit opens the policy in force in $VISUAL, $EDITOR or vi, with what each setting means.
It checks what you save as a configuration file is checked, shows what changes and who
would lead, and asks before it publishes the policy. A text that is not valid is opened
again with its errors; leave it as it is to give up.

An empty or unchanged text publishes nothing. If somebody else has changed the policy
meanwhile, edit is refused with what has changed, with exit status 3. Whenever it fails,
the text is kept in a file that policy --apply can publish.

The files of the hosts are not changed. With policy.source: group they have no policy:
see docs/policies.md.`
	output := c.outputFlag()
	c.Flags().BoolVar(&yes, "yes", false, "publish it without asking")
	c.Flags().BoolVar(&force, "force", false, "publish it even if no member is eligible under it")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		connected := func(f func(context.Context, group) error) error {
			return withSelection(cmd, func(ctx context.Context, s selection) error { return s.withOnly(ctx, wholeGroup, f) })
		}
		e := policyEdit{appliedPolicy: appliedPolicy{result: c.result(output)}, yes: yes, force: force, editor: openEditor}
		return e.finish(&e.appliedPolicy, e.run(connected))
	}
}

// policyEdit is one run of 'policy edit'.
type policyEdit struct {
	appliedPolicy
	yes, force bool
	editor     func(file string) error

	opened cluster.Stored[cluster.Policy]
	// base is the configuration of the group on this host, and edited has the policy of the text besides.
	base, edited config.Config
	file         string
}

// run opens the policy, has it edited and publishes it. There is no connection while somebody edits, which may take
// longer than a session lasts.
func (e *policyEdit) run(connected func(func(context.Context, group) error) error) error {
	if err := connected(e.open); err != nil {
		return err
	}
	changed, err := e.edit()
	if err == nil && changed {
		err = connected(e.publish)
	}
	if err != nil && e.file != "" {
		return fmt.Errorf("%w\nthe text is kept in %s", err, e.file)
	} else if err != nil {
		return err
	}
	return os.Remove(e.file)
}

// open reads the policy in force.
func (e *policyEdit) open(ctx context.Context, g group) error {
	snap, err := g.read(ctx)
	if err == nil {
		err = g.checkPublished(snap.Policy)
	}
	e.Group, e.base, e.opened, e.Revision = g.name, g.cfg, snap.Policy, snap.Policy.Record.Revision
	return err
}

// publish shows what the edited policy changes, and publishes it once that is confirmed.
func (e *policyEdit) publish(ctx context.Context, g group) error {
	confirm := func() error {
		if e.yes {
			return nil
		}
		return e.ask("Publish this policy?", "--yes")
	}
	p := operator.Proposal{Group: g.name, Config: e.edited, By: whoami(), Force: e.force, Opened: &e.opened}
	return g.applyPolicy(ctx, &e.appliedPolicy, p, false, confirm)
}

// edit has the policy edited until it is valid. It reports whether it has changed.
func (e *policyEdit) edit() (changed bool, err error) {
	rec := e.opened.Record
	first := fmt.Sprintf("# The policy of the group %s: revision %d, published by %s at %s.\n# Nothing is published "+
		"if you leave it as it is, or empty.\n%s",
		printable(e.Group), rec.Revision, printable(rec.By), rec.Time.Local().Format(time.DateTime),
		printableText(config.DescribedRulesYAML(rec.Rules)))
	file, err := os.CreateTemp("", "zkelectd-policy-*.yaml") // only this user can read and write it
	if err != nil {
		return false, err
	}
	e.file = file.Name()
	if err := file.Close(); err != nil {
		return false, err
	}
	for shown := first; ; {
		if err := os.WriteFile(e.file, []byte(shown), 0o600); err != nil {
			return false, err
		}
		if err := e.editor(e.file); err != nil {
			return false, err
		}
		data, err := os.ReadFile(e.file)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("the editor has removed the text: %w", err)
			e.file = "" // nothing is kept
		}
		if err != nil {
			return false, err
		}
		e.edited, err = e.base.ParseRules(e.file, data)
		switch {
		case errors.Is(err, config.ErrNoRules):
			e.say("nothing is published: the text is empty")
			return false, nil
		case string(data) == first, err == nil && len(config.RulesDiff(rec.Rules, e.edited.Rules())) == 0:
			e.say("nothing is published: the policy is not changed")
			return false, nil
		case err == nil:
			return true, nil
		case string(data) == shown, !e.atTerminal():
			// not wrapped: the error is not about a configuration file
			return false, errors.New("the policy is not valid:\n" + err.Error())
		}
		shown = e.withErrors(data)
	}
}

// errorMark begins the lines above a text that say what is wrong with it.
const errorMark = "# ERROR: "

// withErrors returns a text that is not valid with its errors, whose line numbers are those of the result.
func (e *policyEdit) withErrors(text []byte) string {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // below these lines it would be a part of the text
	for bytes.HasPrefix(text, []byte(errorMark)) {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	marked := func(lines []string) string {
		var b strings.Builder
		for _, line := range lines {
			b.WriteString(errorMark + printable(line) + "\n")
		}
		return b.String() + string(text)
	}
	lines := func(text string) []string {
		_, err := e.base.ParseRules("line", []byte(text))
		if err == nil {
			return nil // only the lines of errors could not be read, as after a change of the encoding
		}
		return strings.Split(err.Error(), "\n")
	}
	return marked(lines(marked(lines(string(text)))))
}

// openEditor runs the person's editor. An interrupt is for the editor.
func openEditor(file string) error {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, os.Interrupt, syscall.SIGQUIT)
	defer signal.Stop(ignored)
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	cmd := exec.Command("/bin/sh", "-c", editor+` "$1"`, "sh", file) // it may have arguments, as git and kubectl permit
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor, %s, has failed: %w; $VISUAL and $EDITOR name another one", editor, err)
	}
	return nil
}
