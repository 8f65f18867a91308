package command

import "context"

// Limit limits how many commands or checks run at once. A nil one limits nothing. It is safe for concurrent use.
type Limit chan struct{}

// NewLimit returns a limit of n.
func NewLimit(n int) Limit { return make(Limit, n) }

// Enter waits until one more may run; then Leave must be called at its end. It returns the error of ctx if that is done
// before.
func (l Limit) Enter(ctx context.Context) error {
	if l == nil {
		return ctx.Err()
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave ends what Enter has begun.
func (l Limit) Leave() {
	if l != nil {
		<-l
	}
}
