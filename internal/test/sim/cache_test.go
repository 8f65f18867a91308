package sim

import "zkelectd/internal/cluster"

// caches keep decoded records: a version of a znode always has the same content.
type caches struct {
	elected map[version]cluster.Stored[cluster.Elected]
	fence   map[version]cluster.Stored[cluster.Fence]
	current map[version]cluster.Stored[cluster.Current]
	node    map[version]cluster.Stored[cluster.Node]
	policy  map[version]cluster.Stored[cluster.Policy]
	control map[version]cluster.Stored[cluster.Control]
	slots   map[version]cluster.Stored[cluster.Slots]
}

type version struct {
	path     string
	modified int64
}

func newCaches() caches {
	return caches{
		make(map[version]cluster.Stored[cluster.Elected]), make(map[version]cluster.Stored[cluster.Fence]),
		make(map[version]cluster.Stored[cluster.Current]), make(map[version]cluster.Stored[cluster.Node]), make(map[version]cluster.Stored[cluster.Policy]),
		make(map[version]cluster.Stored[cluster.Control]), make(map[version]cluster.Stored[cluster.Slots]),
	}
}

func cached[T any](cache map[version]cluster.Stored[T], path string, data []byte, stat cluster.Stat, exists bool,
	read func(path string, data []byte, stat cluster.Stat, exists bool) cluster.Stored[T]) cluster.Stored[T] {
	if !exists {
		return read(path, data, stat, exists)
	}
	s, ok := cache[version{path, stat.Modified}]
	if !ok {
		s = read(path, data, stat, exists)
		cache[version{path, stat.Modified}] = s
	}
	s.Stat = stat
	return s
}
