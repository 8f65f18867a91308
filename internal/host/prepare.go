package host

import (
	"context"

	"zkelectd/internal/command"
	"zkelectd/internal/config"
)

// preparation is one run of child.prepare.
type preparation struct {
	config.Prepare
	cancel context.CancelFunc
	done   chan struct{} // closed once the command has ended, and its process group was killed
	gone   chan struct{} // closed once the processes that had left that group were killed, too
}

// startPreparation starts a command once the run before is gone, nil for none; ended is called when it has ended.
func startPreparation(p config.Prepare, run command.Command, before *preparation, began func(), ended func(p *preparation, killed bool, err error)) *preparation {
	ctx, cancel := context.WithCancel(context.Background())
	started := &preparation{Prepare: p, cancel: cancel, done: make(chan struct{}), gone: make(chan struct{})}
	mark := command.Mark()
	run.Env = append(run.Env, mark)
	go func() { // ends with the command, which cancel ends
		if before != nil {
			<-before.gone
		}
		err := ctx.Err()
		if err == nil {
			began()
			_, err = run.Run(ctx)
		}
		killed := ctx.Err() != nil
		cancel()
		close(started.done)
		command.KillMarked(mark)
		close(started.gone)
		ended(started, killed, err)
	}()
	return started
}
