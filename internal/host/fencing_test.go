package host

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/work/command"
	"zkelectd/internal/work/fencer"
)

// Groups share one fencing of a host, but not that of another host with the same node id, whatever tells the two apart.
func TestHostsWithOneNodeIDAreFencedOnTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c config.Config
		c.Fencing.Levels, c.Fencing.Timeout = []config.FencingLevel{{Command: []string{"power-off"}}}, time.Minute
		f, release, done := new(Host).fencing(c), make(chan struct{}), make(chan error)
		began := make(chan string, 5)
		first := fencer.Target{Group: "g1", Node: "n1", Host: "a", Site: "s", Address: "a:7070", Term: 3}
		targets := []fencer.Target{first, first, first, first, first}
		targets[1].Group, targets[1].Term = "g2", 8
		targets[2].Host, targets[3].Site, targets[4].Address = "other", "other", "other"
		for _, target := range targets {
			go func() {
				_, err := f.FenceNode(t.Context(), target, func(context.Context, command.Command) (fencer.Result, error) {
					began <- target.Host + " " + target.Site + " " + target.Address
					<-release
					return fencer.Result{}, nil
				})
				done <- err
			}()
		}
		synctest.Wait()
		close(release)
		for range targets {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		close(began)
		var fenced []string
		for text := range began {
			fenced = append(fenced, text)
		}
		slices.Sort(fenced)
		if want := []string{"a other a:7070", "a s a:7070", "a s other", "other s a:7070"}; !slices.Equal(fenced, want) {
			t.Errorf("fenced %q, want %q", fenced, want)
		}
	})
}
