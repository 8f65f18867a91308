package sim

import "time"

// cut partitions the host: messages in flight wait, as in TCP, until the partition is over or the client gives up.
func (h *host) cut(d, patience time.Duration) {
	if h.net != netFine {
		return
	}
	h.net = netCut
	if h.session != nil {
		s := h.session
		s.stopHearing()
		epoch := s.epoch
		h.w.after(patience, func() {
			if h.net == netCut && s.epoch == epoch {
				s.disconnect(0)
			}
		})
	}
	h.w.after(d, h.connect)
}

// reset only breaks the connection.
func (h *host) reset() {
	if h.session != nil && h.net == netFine {
		h.session.stopHearing()
		h.session.disconnect(h.w.between(0, 20*time.Millisecond))
	}
}

// hang cuts the host's server off from the others: it answers pings, so the client stays connected.
func (h *host) hang(d time.Duration) {
	if h.net != netFine {
		return
	}
	h.net = netHangs
	if h.session != nil {
		h.session.stopHearing()
	}
	h.w.after(d, h.connect)
}

// connect ends a partition. Messages that waited arrive now.
func (h *host) connect() {
	was := h.net
	h.net, h.view = netFine, nil
	if was == netStale && h.session != nil {
		h.session.disconnect(h.w.between(0, 20*time.Millisecond)) // the server disconnects its clients when it notices
	}
	if h.session == nil || was == netFine || was == netStale {
		return
	}
	s := h.session
	if s.up && !h.paused {
		s.touch()
	}
	held := s.held
	s.held = nil
	for _, do := range held {
		do()
	}
}

// outage takes all servers down. When they are back, every session has its whole timeout again.
func (w *world) outage(d time.Duration) {
	if w.down {
		return
	}
	w.down = true
	for _, h := range w.hosts {
		if h.session != nil {
			h.session.disconnect(w.between(0, 50*time.Millisecond))
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
	if w.emptied || w.copied {
		w.lose()
	}
	for _, s := range w.all {
		s.wrote, s.quiet = w.now, false
		s.stopHearing()
	}
}
