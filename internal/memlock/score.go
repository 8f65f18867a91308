package memlock

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// Scores that zkelectd asks for. The process that can end the work is the last to be killed.
const (
	ScoreGuard  = -1000
	ScoreDaemon = -500
)

const scoreFile = "/proc/self/oom_score_adj"

var score struct {
	sync.Mutex
	file      *os.File // open from the start
	own       int      // what this process has
	inherited int      // what its children get
}

// lowerScore sets oom_score_adj to want, or to the lowest value that is permitted, and returns what is in force.
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
	// What protects zkelectd is not for the work; what exposes it, as in some containers, is for both.
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

// Inherited calls start, within which a process is started, with the oom_score_adj that children get: what this process
// was started with, but no less than 0. It changes nothing before [Protect].
func WithChildScore(start func() error) error {
	score.Lock()
	defer score.Unlock()
	if score.own < score.inherited && writeScore(score.inherited) == nil {
		// What was permitted once is permitted again.
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
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Run is cmd.Run within [Inherited].
func Run(cmd *exec.Cmd) error {
	if err := WithChildScore(cmd.Start); err != nil {
		return err
	}
	return cmd.Wait()
}
