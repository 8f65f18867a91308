package sim

import "time"

// cut is a partition: what is under way waits, as TCP does, until the partition is over or the client gives up.
func (h *host) cut(d, patience time.Duration) {
	if h.net != netFine {
		return
	}
	h.net = netCut
	if h.loop != nil {
		s := h.loop.s
		s.silent()
		epoch := s.epoch
		h.w.after(patience, func() {
			if h.net == netCut && s.epoch == epoch {
				s.breaks(0)
			}
		})
	}
	h.w.after(d, h.connect)
}

// reset breaks the connection alone.
func (h *host) reset() {
	if h.loop != nil && h.net == netFine {
		h.loop.s.silent()
		h.loop.s.breaks(h.w.between(0, 20*time.Millisecond))
	}
}

// hang is a server that is cut off from the others: it answers pings, so the client stays.
func (h *host) hang(d time.Duration) {
	if h.net != netFine {
		return
	}
	h.net = netHangs
	if h.loop != nil {
		h.loop.s.silent()
	}
	h.w.after(d, h.connect)
}

// connect ends a partition. What waited arrives now.
func (h *host) connect() {
	was := h.net
	h.net, h.view = netFine, nil
	if was == netStale && h.loop != nil {
		h.loop.s.breaks(h.w.between(0, 20*time.Millisecond)) // it gives up its clients when it has noticed
	}
	if h.loop == nil || was == netFine || was == netStale {
		return
	}
	s := h.loop.s
	if s.up && !h.paused {
		s.touch()
	}
	held := s.held
	s.held = nil
	for _, do := range held {
		do()
	}
}

// outage takes all servers down. When they are back every session has its whole time again.
func (w *world) outage(d time.Duration) {
	if w.down {
		return
	}
	w.down = true
	for _, h := range w.hosts {
		if h.loop != nil {
			h.loop.s.breaks(w.between(0, 50*time.Millisecond))
		}
	}
	w.after(d, w.restore)
}

func (w *world) restore() {
	if !w.down {
		return
	}
	w.log("the servers are back")
	w.down = false
	w.drawSkew()
	if w.emptied {
		w.lose()
	}
	for _, s := range w.all {
		s.wrote, s.quiet = w.now, false
		s.silent()
	}
}
