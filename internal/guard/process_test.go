package guard

import (
	"os"
	"slices"
	"syscall"
	"testing"
)

// However many processes there are, one portion of a list has an end, and the files that it opens are counted.
func TestPortionsAreLimited(t *testing.T) {
	next := 0
	endless := func(_, limit int) (all []int, opened int) {
		next++
		return []int{2 * next, 2*next + 1}, min(limit, 2)
	}
	if all := nearest(endless, 1); len(all) != portionOpened {
		t.Errorf("%d descendants with one file for each", len(all))
	}
	many := func(int, int) ([]int, int) { return make([]int, portionListed/4), 1 }
	if all := nearest(many, 1); len(all) != portionListed {
		t.Errorf("%d descendants, of those that need few files", len(all))
	}
	var r reaper
	exits := 0
	r.wait4 = func(*syscall.WaitStatus) (int, error) { return 1 << 29, nil }
	if r.reap(func(int, syscall.WaitStatus) { exits++ }) || exits != portionReaped || !r.any || !r.more {
		t.Errorf("%d exits, %+v", exits, r)
	}
	r.wait4 = func(*syscall.WaitStatus) (int, error) { return -1, syscall.ECHILD }
	if !r.reap(nil) || r.any || r.more {
		t.Errorf("nothing is left: %+v", r)
	}
	var scan processScan
	defer scan.close()
	for found, parts := false, 1; !found; parts++ {
		pids, last := scan.next()
		if found = slices.Contains(pids, os.Getpid()); len(pids) > portionOpened || last && !found && parts > 100 {
			t.Fatalf("%d processes at once; this one was found: %t", len(pids), found)
		}
	}
}
