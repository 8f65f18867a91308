package sim

import "time"

var starvation = []faultKind{
	{name: "daemon starved", shared: true, do: func(w *world, m *member) { m.starve(w.now + w.between(0, 4*m.timeout)) }},
	{name: "guard starved", shared: true, do: func(w *world, m *member) { m.starved = max(m.starved, w.now+w.between(0, 4*m.timeout)) }},
}

// starve leaves the daemon little time to run: its events wait again and again, but it runs often enough for its guard not to
// give it up.
func (h *host) starve(until time.Duration) {
	if !h.alive || h.paused || h.w.calm || h.w.now >= until {
		return
	}
	run := h.run
	h.w.log("%s: the daemon gets no CPU time", h.id)
	h.paused = true
	if h.session != nil {
		h.session.stopHearing()
	}
	h.w.after(h.w.between(0, h.timeout*2/3), func() {
		if h.alive && h.run == run && h.paused {
			h.resume()
			h.w.after(h.w.between(0, h.timeout/10), func() {
				if h.run == run {
					h.starve(until)
				}
			})
		}
	})
}

// guardDelay returns by how much the guard acts late now, at most most.
func (h *host) guardDelay(most time.Duration) time.Duration {
	if h.starved <= h.w.now || h.w.calm {
		return 0
	}
	return h.w.between(0, min(most, h.starved-h.w.now))
}
