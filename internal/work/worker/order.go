package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"zkelectd/internal/guard"
	"zkelectd/internal/work/probe"
	"zkelectd/internal/work/workenv"
)

// Order tells promotable work its role: with a command, or with a POST to a URL. One of them is set.
type Order struct {
	// Setting is the section of the configuration, for errors.
	Setting string
	Exec    []string
	HTTP    string
}

// Empty reports whether there is no order.
func (o Order) Empty() bool { return len(o.Exec) == 0 && o.HTTP == "" }

// give gives the order to the work. The guard runs a command under the lease, and none of its processes is left when
// give returns. After an error the work may or may not have got the order, or may still get it.
func (o Order) give(ctx context.Context, w *Worker, f workenv.Fencing, role string) error {
	f.Role = role
	var err error
	if len(o.Exec) > 0 {
		err = o.run(ctx, w.opt.Guard, workenv.Build(os.Environ(), f, w.opt.Spec.Env))
	} else {
		err = o.post(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.Setting, err)
	}
	return nil
}

func (o Order) run(ctx context.Context, g Guard, env []string) error {
	h, err := g.Start(guard.Spec{Argv: o.Exec, Env: env, Capture: true})
	if err != nil {
		return fmt.Errorf("%s cannot be started: %w", o.Exec[0], err)
	}
	if err := await(ctx, h); err != nil {
		return fmt.Errorf("%s was not done in time", o.Exec[0])
	}
	if err := outcome(h, h.Status()); err != nil {
		return fmt.Errorf("%s %w", o.Exec[0], err)
	}
	return nil
}

func (o Order) post(ctx context.Context, f workenv.Fencing) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := probe.Request(ctx, http.MethodPost, o.HTTP, body); err != nil {
		return fmt.Errorf("the POST failed: %w", err)
	}
	return nil
}
