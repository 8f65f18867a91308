package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// descendants lists the processes below a process, without spare and what is below that. A zombie counts: until it is
// reaped it may have threads that run, and what it leaves behind may not have been seen yet.
func descendants(root, spare int) []int {
	below := children()
	var all []int
	next := []int{root}
	for len(next) > 0 {
		pid := next[0]
		next = next[1:]
		for _, c := range below(pid) {
			if c != spare {
				next, all = append(next, c), append(all, c)
			}
		}
	}
	return all
}

// children returns how to look up the children of a process: in the lists of its threads where the kernel has them, else
// in a table of all processes.
func children() func(pid int) []int {
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err == nil {
		return listed
	}
	table := make(map[int][]int)
	for _, pid := range processes() {
		if s, err := readStat(pid); err == nil {
			table[s.parent] = append(table[s.parent], pid)
		}
	}
	return func(pid int) []int { return table[pid] }
}

func listed(pid int) []int {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	var all []int
	for _, path := range lists {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range bytes.Fields(data) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

type stat struct {
	zombie        bool
	parent, group int
	started       uint64 // in clock ticks since boot: with the pid it names a process for good
}

func readStat(pid int) (stat, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return stat{}, err
	}
	// pid (name) state ppid pgrp …; the name may hold anything, so count from its end.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("%s is too short", path)
	}
	s := stat{zombie: fields[0] == "Z" || fields[0] == "X"}
	var errs [3]error
	s.parent, errs[0] = strconv.Atoi(fields[1])
	s.group, errs[1] = strconv.Atoi(fields[2])
	s.started, errs[2] = strconv.ParseUint(fields[19], 10, 64)
	return s, errors.Join(errs[:]...)
}

// processes are the ids of all there are.
func processes() []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var all []int
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// stamp picks out of an environment what tells one piece of work from every other: node, root and term.
func stamp(env []string) []string {
	var marks []string
	for _, kv := range env {
		if strings.HasPrefix(kv, "ZKELECTD_") {
			marks = append(marks, kv)
		}
	}
	return marks
}

// stamped lists the processes with all these variables in their environment. Without any nothing is.
func stamped(marks []string) []int {
	if len(marks) == 0 {
		return nil
	}
	var all []int
	for _, pid := range processes() {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || pid == os.Getpid() {
			continue
		}
		env := strings.Split(string(data), "\x00")
		if !slices.ContainsFunc(marks, func(m string) bool { return !slices.Contains(env, m) }) {
			all = append(all, pid)
		}
	}
	return all
}

// groupGone tells that no live process of a process group is left.
func groupGone(group int) bool {
	if err := syscall.Kill(-group, 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	for _, pid := range processes() {
		if s, err := readStat(pid); err == nil && s.group == group && !s.zombie {
			return false
		}
	}
	return true
}
