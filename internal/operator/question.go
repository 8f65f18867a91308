package operator

import (
	"context"
	"os"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/hook"
	"zkelectd/internal/policy"
	"zkelectd/internal/whatif"
	"zkelectd/internal/workenv"
)

// maxExclusion is what doubling makes of election.exclusion at most.
const maxExclusion = time.Hour

// ElectorOptions are those of a configuration.
func ElectorOptions(c config.Config) elector.Options {
	return elector.Options{Exclusion: c.Election.Exclusion, ExclusionMax: max(c.Election.Exclusion, maxExclusion)}
}

// Question is a forecast for the group as it is, under the policy that an elector with this configuration ranks by.
func Question(c config.Config, snap cluster.Snapshot) (whatif.Question, error) {
	q := whatif.Question{Snapshot: snap, Options: ElectorOptions(c), Wall: time.Now()}
	rec := snap.Policy.Record
	if !snap.Policy.Readable() {
		rec = cluster.Policy{Rules: c.Rules()} // as an elector does
	}
	var err error
	if q.Policy, err = policy.New(rec); err != nil {
		q.Policy, err = policy.New(cluster.Policy{Rules: c.Rules()})
	}
	return q, err
}

// AskProgram runs the ranking program argv of an exec policy, and returns its answer or why there is none.
func AskProgram(ctx context.Context, argv []string, ask policy.Input, timeout time.Duration) policy.Answer {
	if len(argv) == 0 {
		return policy.Answer{Err: "policy.exec.command is not set on this host"}
	}
	program := hook.Hook{Setting: "policy.exec.command", Argv: argv, Env: workenv.Clean(os.Environ()), Timeout: timeout}
	out, err := program.Output(ctx, policy.QuestionJSON(ask))
	if err != nil {
		return policy.Answer{Err: err.Error()}
	}
	return policy.ParseAnswer(out, ask)
}

// Asker returns a function that asks the ranking program of c, for a forecast, while ctx lasts.
func Asker(ctx context.Context, c config.Config) func(policy.Input) *policy.Answer {
	return func(in policy.Input) *policy.Answer {
		a := AskProgram(ctx, c.Policy.Exec.Command, in, c.Policy.Exec.Timeout)
		return &a
	}
}
