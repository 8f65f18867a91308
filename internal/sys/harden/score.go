package harden

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// OOM scores of zkelectd's processes. The OOM killer chooses the process that can end the work last.
const (
	OOMScoreGuard  = -1000
	OOMScoreDaemon = -500
)

const scoreFile = "/proc/self/oom_score_adj"

var score struct {
	sync.Mutex
	file      *os.File // opened in advance
	own       int      // the score of this process
	inherited int      // the score of its children
}

// lowerScore sets oom_score_adj to want, or to the lowest permitted value, and returns the value in force.
func lowerScore(want int) (int, error) {
	score.Lock()
	defer score.Unlock()
	f, err := os.OpenFile(scoreFile, os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("the OOM killer may choose this process: %w", err)
	}
	if score.file != nil {
		score.file.Close()
	}
	score.file = f
	was, err := readScore()
	if err != nil {
		return 0, fmt.Errorf("the OOM killer may choose this process: %w", err)
	}
	// A score that protects zkelectd is not passed on to the work; one that exposes it, as in some containers, is.
	score.own, score.inherited = was, max(0, was)
	if was <= want {
		return was, nil
	}
	err = writeScore(want)
	if err == nil {
		score.own = want
		return want, nil
	}
	for low, high := want, was; high-low > 1; { // high is permitted, low is not
		if mid := (low + high) / 2; writeScore(mid) == nil {
			high, score.own = mid, mid
		} else {
			low = mid
		}
	}
	if score.own < 0 {
		return score.own, nil
	}
	return score.own, fmt.Errorf("the OOM killer may choose this process: cannot set oom_score_adj to %d: %w: "+
		"set OOMScoreAdjust=-900 in the unit, or --oom-score-adj=-900 for a container", want, err)
}

// WithChildScore calls start, which starts a process, with the oom_score_adj for children: the one that this process
// was started with, but at least 0. Before [Protect] it only calls start.
func WithChildScore(start func() error) error {
	score.Lock()
	defer score.Unlock()
	if score.own < score.inherited && writeScore(score.inherited) == nil {
		// A value that was permitted once is permitted again.
		defer writeScore(score.own)
	}
	return start()
}

func readScore() (int, error) {
	var buf [16]byte
	n, err := score.file.ReadAt(buf[:], 0)
	if n == 0 && err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(buf[:n])))
}

func writeScore(to int) error {
	_, err := score.file.WriteAt([]byte(strconv.Itoa(to)), 0)
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err
	}
	return err
}
