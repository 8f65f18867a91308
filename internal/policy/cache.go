package policy

import (
	"reflect"
	"sync"

	"zkelectd/internal/cluster"
)

// Cache compiles policy records. It keeps the last result, so that a policy is compiled once when it changes and not
// each time that it is used. The zero value is ready to use; it is safe for concurrent use.
type Cache struct {
	mu       sync.Mutex
	filled   bool
	revision int64
	rules    cluster.Rules
	policy   *Policy
	err      error
}

// Compile returns what [New] returns for the record.
func (c *Cache) Compile(rec cluster.Policy) (*Policy, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.filled || c.revision != rec.Revision || !reflect.DeepEqual(c.rules, rec.Rules) {
		c.filled, c.revision, c.rules = true, rec.Revision, rec.Rules
		c.policy, c.err = New(rec)
	}
	return c.policy, c.err
}
