package sim

import "zkelectd/internal/cluster"

// cache keeps decoded records, each of type [cluster.Stored]: a version of a znode always has the same content.
type cache map[version]any

type version struct {
	path     string
	modified int64
}

// readCached returns the record at a path, from the cache if its version is there.
func readCached[T any](w *world, path string, decode func(path string, data []byte, stat cluster.Stat, exists bool) cluster.Stored[T]) cluster.Stored[T] {
	data, stat, err := w.tree.Get(0, path, false)
	if err != nil {
		return decode(path, data, stat, false)
	}
	s, ok := w.cache[version{path, stat.Modified}].(cluster.Stored[T])
	if !ok {
		s = decode(path, data, stat, true)
		w.cache[version{path, stat.Modified}] = s
	}
	s.Stat = stat
	return s
}
