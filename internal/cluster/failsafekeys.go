package cluster

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"
)

// FailsafeKeys is the record of failsafe-keys: the secrets with which the members of a group authenticate the messages
// of failsafe mode. Messages are authenticated with each of them, and accepted with any: so a rotation, which adds one
// and drops the oldest, may reach the members at different times.
type FailsafeKeys struct {
	Header
	// Keys has the newest first.
	Keys []FailsafeKey `json:"keys"`
	// By is the id of the daemon, or user@host of the operator, that added the newest.
	By string `json:"by"`
}

// FailsafeKey is one secret.
type FailsafeKey struct {
	Secret []byte    `json:"secret"`
	Time   time.Time `json:"time"`
}

// The number of keys, and the size of each in bytes.
const (
	maxFailsafeKeys = 2
	failsafeKeySize = 32
)

func (k *FailsafeKeys) validate(Stat) error {
	if len(k.Keys) == 0 || len(k.Keys) > maxFailsafeKeys {
		return fmt.Errorf("it has %d keys, not 1 to %d", len(k.Keys), maxFailsafeKeys)
	}
	for _, key := range k.Keys {
		if len(key.Secret) != failsafeKeySize {
			return fmt.Errorf("a key has %d bytes, not %d", len(key.Secret), failsafeKeySize)
		}
	}
	return nil
}

// Secrets returns the secrets, the newest first.
func (k FailsafeKeys) Secrets() [][]byte {
	all := make([][]byte, len(k.Keys))
	for i, key := range k.Keys {
		all[i] = key.Secret
	}
	return all
}

// Rotated returns k with a new key. The zero value gets its first one.
func (k FailsafeKeys) Rotated(by string, wall time.Time) FailsafeKeys {
	secret := make([]byte, failsafeKeySize)
	rand.Read(secret) // never fails
	k.Keys = append([]FailsafeKey{{secret, wall}}, slices.Clone(k.Keys[:min(len(k.Keys), maxFailsafeKeys-1)])...)
	k.By = by
	return k
}

// FailsafeKeysTx returns the write of the keys. It fails with ErrBadVersion or ErrNodeExists if they have changed since
// they were read.
func (p Paths) FailsafeKeysTx(read Stored[FailsafeKeys], next FailsafeKeys) []Op {
	return []Op{writeOp(p.FailsafeKeys(), read, Encode(&next))}
}
