package web

import "sync"

// networkFactor is how many times the limit of one address a whole IPv6 network gets.
const networkFactor = 2

// quota limits how many of something may be in use concurrently: in total, for each address, and for each IPv6 network.
type quota struct {
	total, perClient int
	mu               sync.Mutex
	used             int
	usedBy           map[client]int // keys have only an address or only a network
}

func newQuota(total, perClient int) *quota {
	return &quota{total: total, perClient: perClient, usedBy: make(map[client]int)}
}

// acquire takes one for a client. It returns false if a limit is reached. Otherwise the caller must release it.
func (s *quota) acquire(from client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	address, network := client{address: from.address}, client{network: from.network}
	if s.used >= s.total || s.usedBy[address] >= s.perClient || (from.network != "" && s.usedBy[network] >= networkFactor*s.perClient) {
		return false
	}
	s.used++
	s.usedBy[address]++
	if from.network != "" {
		s.usedBy[network]++
	}
	return true
}

func (s *quota) release(from client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	for _, key := range []client{{address: from.address}, {network: from.network}} {
		if s.usedBy[key] > 1 {
			s.usedBy[key]--
		} else {
			delete(s.usedBy, key)
		}
	}
}
