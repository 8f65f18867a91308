package testhelper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Races collects the reports of the race detector in processes that tests start.
type Races struct{ dir string }

// CollectRaces makes all processes that are started from now on write their reports of data races into files, and exit
// as if there was none: a report neither disturbs a test of what a process prints, nor is it lost. It also makes them
// exit at once, which children that must stop in time need. The caller calls Check at the end.
func CollectRaces() (*Races, error) {
	dir, err := os.MkdirTemp("", "races-")
	if err != nil {
		return nil, err
	}
	// Processes of other users write there, too.
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		return nil, err
	}
	return &Races{dir}, os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0 log_path="+filepath.Join(dir, "race"))
}

// Check returns the reports as an error, and removes the files.
func (r *Races) Check() error {
	defer os.RemoveAll(r.dir)
	files, err := filepath.Glob(filepath.Join(r.dir, "race.*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && hasRace(string(text)) {
			err = fmt.Errorf("%s: %s", filepath.Base(file), text)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hasRace reports whether a log contains a report of a data race. It ignores the one in go-zookeeper v1.0.4, which
// reads the last zxid at a connect while a first reply may set it.
func hasRace(log string) bool {
	reports := strings.Split(log, "WARNING: DATA RACE")
	return slices.ContainsFunc(reports[1:], func(report string) bool {
		text, _, _ := strings.Cut(report, "==================")
		return !strings.Contains(text, "zk.(*Conn).sendSetWatches")
	})
}
