package operator

import (
	"context"
	"os"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/elector"
	"zkelectd/internal/elector/whatif"
	"zkelectd/internal/policy"
	"zkelectd/internal/work/hook"
	"zkelectd/internal/work/workenv"
)

// maxExclusion bounds the duration of an exclusion, which doubles with each strike.
const maxExclusion = time.Hour

// ElectorOptions returns the elector's options for a configuration.
func ElectorOptions(c config.Config) elector.Options {
	return elector.Options{
		Exclusion: c.Election.Exclusion, ExclusionMax: max(c.Election.Exclusion, maxExclusion), Takeover: c.TakeoverTimeout(),
	}
}

// Question returns the question for a forecast of snap, under the policy by which an elector with this configuration ranks. name
// is the name of the group or of one of its slots.
func Question(name string, c config.Config, snap cluster.Snapshot) (whatif.Question, error) {
	return question(name, c, snap, new(policy.Cache))
}

func question(name string, c config.Config, snap cluster.Snapshot, policies *policy.Cache) (whatif.Question, error) {
	q := whatif.Question{Snapshot: snap, Options: ElectorOptions(c), StrikeResetAfter: c.Election.StrikeResetAfter(), Wall: time.Now()}
	q.Options.Group = cluster.SlotName(cluster.GroupOf(name), snap.Slot)
	q.Options.Epoch = snap.Slots.Record.Epoch // as an elector that was started for these slots
	rec := snap.Policy.Record
	if !snap.Policy.Readable() {
		rec = cluster.Policy{Rules: c.Rules()} // as an elector does
	}
	var err error
	if q.Policy, err = policies.Compile(rec); err != nil {
		q.Policy, err = policy.New(cluster.Policy{Rules: c.Rules()})
	}
	return q, err
}

// AskProgram runs the ranking program argv of an exec policy. It returns the program's answer, or the reason why there is none.
func AskProgram(ctx context.Context, argv []string, in policy.Input) policy.Answer {
	if len(argv) == 0 {
		return policy.Answer{Err: "policy.exec is not set on this host"}
	}
	program := hook.Hook{Setting: "policy.exec", Argv: argv, Env: workenv.Clean(os.Environ()), Timeout: policy.ProgramTimeout}
	out, err := program.Output(ctx, policy.QuestionJSON(in))
	if err != nil {
		return policy.Answer{Err: err.Error()}
	}
	return policy.ParseAnswer(out, in)
}

// Asker returns a function that runs the ranking program of c for a forecast, while ctx is not done.
func Asker(ctx context.Context, c config.Config) func(policy.Input) *policy.Answer {
	return func(in policy.Input) *policy.Answer {
		a := AskProgram(ctx, c.Policy.Exec, in)
		return &a
	}
}
