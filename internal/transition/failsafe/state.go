package failsafe

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"zkelectd/internal/cluster"
)

// State is what a member's daemon must not forget: it is stored before the daemon acts on it. The zero value is that of
// a daemon without a state directory.
type State struct {
	// Key identifies the state directory. It is random, and never changes.
	Key string `json:"key"`
	// Wait is the longest time for which the daemon promises anything. After a start it is bound for that long, by what
	// it may have promised before.
	Wait cluster.Duration `json:"wait,omitempty"`
	// Vetoed is, by group, the highest term for which it promises nothing any more.
	Vetoed map[string]int64 `json:"vetoed,omitempty"`
	// Groups are those in which the daemon has taken part, so that it may be among those that must agree to a successor.
	Groups []string `json:"groups,omitempty"`
}

// TookPart reports whether the daemon may have taken part in a group.
func (s State) TookPart(group string) bool {
	return slices.Contains(s.Groups, group) || s.Groups == nil && s.Wait > 0 // an older version did not store the groups
}

// Merge returns what both states say: the longest wait, the highest terms, all groups. The key is that of s.
func (s State) Merge(o State) State {
	s = s.clone()
	s.Wait = max(s.Wait, o.Wait)
	for group, term := range o.Vetoed {
		if s.Vetoed == nil {
			s.Vetoed = make(map[string]int64)
		}
		s.Vetoed[group] = max(s.Vetoed[group], term)
	}
	for _, group := range o.Groups {
		if !slices.Contains(s.Groups, group) {
			s.Groups = append(slices.Clip(s.Groups), group)
		}
	}
	return s
}

// Equal reports whether two states say the same.
func (s State) Equal(o State) bool {
	return s.Key == o.Key && s.Wait == o.Wait && maps.Equal(s.Vetoed, o.Vetoed) && slices.Equal(s.Groups, o.Groups)
}

const stateVersion = 1

type storedState struct {
	V int `json:"v"`
	State
}

// Encode returns the state as JSON.
func (s State) Encode() []byte {
	data, err := json.Marshal(storedState{stateVersion, s})
	if err != nil {
		panic(fmt.Sprintf("failsafe: a state is plain: %v", err))
	}
	return append(data, '\n')
}

// DecodeState decodes what Encode has returned. A state that cannot be read must not be replaced: its daemon may have
// promised something.
func DecodeState(data []byte) (State, error) {
	var s storedState
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("not a failsafe state: %w", err)
	}
	switch {
	case s.V != stateVersion:
		return State{}, fmt.Errorf("failsafe state of version %d, this zkelectd reads %d: upgrade this host", s.V,
			stateVersion)
	case s.Key == "":
		return State{}, errors.New("a failsafe state without a key")
	case s.Wait < 0 || time.Duration(s.Wait) > cluster.MaxWait:
		return State{}, fmt.Errorf("a failsafe state with a wait of %s", s.Wait)
	}
	return s.State, nil
}

func (s State) clone() State {
	s.Vetoed = maps.Clone(s.Vetoed)
	return s
}
