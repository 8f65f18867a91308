// Package peer carries the messages of failsafe mode between the daemons of a group over HTTP (docs/failsafe.md). All
// messages to one daemon go in one request. Each is authenticated with the keys of its group, in both directions; what
// does not authenticate is never passed on. The package does not know what the messages say: a message that is replayed
// is for its receiver to recognize.
package peer

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Path is the path of the HTTP requests.
const Path = "/v1/failsafe"

// Kind is what a request is for. A message of one kind never counts as one of the other.
type Kind string

// The kinds. A probe binds nobody: it shows whether a round would be answered.
const (
	Round Kind = "round"
	Probe Kind = "probe"
)

// Message is a message about one group.
type Message struct {
	// Group is the root of the group.
	Group string
	Body  []byte
	// Secrets are the keys of the group.
	Secrets [][]byte
}

// Answer is the answer to a [Message].
type Answer struct {
	// Body is authenticated; Err is why there is none.
	Body []byte
	Err  error
}

// ErrForged is the error of an answer that was not made with a key of the group for this question.
var ErrForged = errors.New("the answer does not have the signature of a member of the group: do both hosts use the " +
	"same ZooKeeper servers and root?")

// RefusedError is the error of a message that the other daemon refuses to answer. The text is not authenticated.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "refused: " + printable(e.Reason) }

// maxReason bounds a text that is not authenticated.
const maxReason = 300

func printable(text string) string {
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	return fmt.Sprintf("%q", text)
}

// The limits of a request and of its response.
const (
	maxBody     = 512 << 10
	maxMessages = 2048
	maxName     = 1 << 10 // of a node or a group
	maxQuestion = 4 << 10 // of a message of a request
	nonceSize   = 16
	maxSeals    = 2 // keys in use at the same time, see [cluster.FailsafeKeys]
)

// request is the body of an HTTP request.
type request struct {
	V        int      `json:"v"`
	Kind     Kind     `json:"kind"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	Nonce    []byte   `json:"nonce"`
	Messages messages `json:"messages"`
}

// response is the body of the response: one message for each of the request, in the same order.
type response struct {
	V        int      `json:"v"`
	Messages messages `json:"messages"`
}

// messages are at most maxMessages. Nobody has authenticated what is decoded: the rest of a body could claim 30 times
// its size.
type messages []sealed

// UnmarshalJSON implements [json.Unmarshaler].
func (m *messages) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	switch open, err := d.Token(); {
	case err != nil || open == nil:
		return err
	case open != json.Delim('['):
		return errors.New("the messages are no list")
	}
	for d.More() {
		if len(*m) == maxMessages {
			return fmt.Errorf("there are more than %d messages", maxMessages)
		}
		var one sealed
		if err := d.Decode(&one); err != nil {
			return err
		}
		*m = append(*m, one)
	}
	return nil
}

// sealed is a message with a code for each key of its group, or the reason why there is no answer, which is not
// authenticated.
type sealed struct {
	Group  string   `json:"group"`
	Body   []byte   `json:"body,omitempty"`
	Seals  [][]byte `json:"seals,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

const version = 1

func newNonce() []byte {
	nonce := make([]byte, nonceSize)
	rand.Read(nonce) // never fails
	return nonce
}

// seal returns the codes of a text under each key.
func seal(secrets [][]byte, parts ...[]byte) [][]byte {
	codes := make([][]byte, len(secrets))
	for i, secret := range secrets {
		codes[i] = code(secret, parts)
	}
	return codes
}

// verify reports whether one of the seals is that of the text under one of the keys, in a time that does not depend on
// the keys. It computes nothing for a text that cannot have a valid seal.
func verify(secrets, seals [][]byte, parts ...[]byte) bool {
	notSeal := func(s []byte) bool { return len(s) != sha256.Size }
	if len(seals) == 0 || len(seals) > maxSeals || slices.ContainsFunc(seals, notSeal) {
		return false
	}
	valid := false
	for _, secret := range secrets {
		want := code(secret, parts)
		for _, got := range seals {
			valid = hmac.Equal(want, got) || valid
		}
	}
	return valid
}

// code returns the HMAC of the parts. The length of each part is in it, so that no other parts have the same text.
func code(secret []byte, parts [][]byte) []byte {
	h := hmac.New(sha256.New, secret)
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}

// question returns the parts that are authenticated in a request.
func (r request) question(group string, body []byte) [][]byte {
	return [][]byte{[]byte("zkelectd failsafe 1 question"), []byte(r.Kind), []byte(r.From), []byte(r.To), r.Nonce,
		[]byte(group), body}
}

// answer returns the parts that are authenticated in the response: those of the question, so that an answer counts for
// nothing else.
func (r request) answer(asked sealed, body []byte) [][]byte {
	parts := slices.Clone(r.question(asked.Group, asked.Body))
	parts[0] = []byte("zkelectd failsafe 1 answer")
	return append(parts, body)
}
