package command

import (
	"context"
	"errors"
	"testing"
)

func TestLimit(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l := NewLimit(2)
	for range 2 {
		if err := l.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Enter(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a third one: %v", err)
	}
	entered := make(chan error)
	go func() { entered <- l.Enter(t.Context()) }()
	l.Leave()
	if err := <-entered; err != nil {
		t.Error(err)
	}
	var none Limit
	if none.Enter(t.Context()) != nil || none.Enter(ended) == nil {
		t.Error("without a limit only the context counts")
	}
	none.Leave()
}
