package httpapi

import "sync"

// networkShare is how many times the limit of one address a whole IPv6 network has.
const networkShare = 2

// shares limits how many of something there are at once: in all, for each address, and for each IPv6 network.
type shares struct {
	all, each int
	mu        sync.Mutex
	used      int
	by        map[source]int // with an address alone, and with a network alone
}

func newShares(all, each int) *shares { return &shares{all: all, each: each, by: make(map[source]int)} }

// take reports whether from may have one more, which has to be given back.
func (s *shares) take(from source) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	address, network := source{address: from.address}, source{network: from.network}
	if s.used >= s.all || s.by[address] >= s.each || (from.network != "" && s.by[network] >= networkShare*s.each) {
		return false
	}
	s.used++
	s.by[address]++
	if from.network != "" {
		s.by[network]++
	}
	return true
}

func (s *shares) give(from source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	for _, key := range []source{{address: from.address}, {network: from.network}} {
		if s.by[key] > 1 {
			s.by[key]--
		} else {
			delete(s.by, key)
		}
	}
}
