package config

// LoadCommand is [LoadHost] for a command: an error in the files of groups must not keep people from operating the others. Such
// groups are left out of Host, and ignored has their errors; it is nil if there are none.
func LoadCommand(src Sources) (h Host, ignored, err error) {
	m := readMain(src)
	if m.dir == "" || len(m.errs) > 0 {
		h, err = LoadHost(src)
		return h, nil, err
	}
	d := m.readDir()
	d.refuseConflicts(m.root(), Host{})
	d.refuseCircles(Host{})
	errs := d.errs
	for _, f := range d.files {
		errs = append(errs, f.errs...)
	}
	if len(errs) > 0 {
		ignored = errs.sorted()
	}
	h = d.host(m)
	h.From = m.from()
	return h, ignored, nil
}
