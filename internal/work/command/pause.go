package command

import (
	"context"
	"time"
)

// Pause waits before a command runs, or runs again. It returns the error of ctx if that ends before.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
