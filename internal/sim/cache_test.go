package sim

import "zkelectd/internal/cluster"

// caches keep decoded records: a version of a znode always has the same content.
type caches struct {
	elected map[version]cluster.Slot[cluster.Elected]
	fence   map[version]cluster.Slot[cluster.Fence]
	current map[version]cluster.Slot[cluster.Current]
	node    map[version]cluster.Slot[cluster.Node]
	policy  map[version]cluster.Slot[cluster.Policy]
	control map[version]cluster.Slot[cluster.Control]
}

type version struct {
	path     string
	modified int64
}

func newCaches() caches {
	return caches{
		make(map[version]cluster.Slot[cluster.Elected]), make(map[version]cluster.Slot[cluster.Fence]),
		make(map[version]cluster.Slot[cluster.Current]), make(map[version]cluster.Slot[cluster.Node]), make(map[version]cluster.Slot[cluster.Policy]),
		make(map[version]cluster.Slot[cluster.Control]),
	}
}

func cached[T any](cache map[version]cluster.Slot[T], path string, data []byte, stat cluster.Stat, exists bool,
	read func(path string, data []byte, stat cluster.Stat, exists bool) cluster.Slot[T]) cluster.Slot[T] {
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
