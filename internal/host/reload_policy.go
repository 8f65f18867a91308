package host

import (
	"context"
	"errors"
	"strings"

	"zkelectd/internal/config"
	"zkelectd/internal/operator"
)

// publishPolicies publishes what has changed in the policies of the groups' files. A group whose policy is refused
// keeps its configuration; if it is the only one, the error is returned.
func (h *Host) publishPolicies(ctx context.Context, s *session, next *Reloaded,
) (map[string]operator.PublishedPolicy, error) {
	all := make(map[string]operator.PublishedPolicy)
	for i, c := range next.Host.Groups {
		r := h.resource(c.Name)
		if r == nil {
			continue // new: its elector publishes its policy
		}
		published, err := r.publishPolicy(ctx, s, c.Config)
		switch {
		case err == nil:
			all[c.Name] = published
		case h.single() || ctx.Err() != nil:
			return nil, err
		default:
			next.Refused[c.Name] = err
			next.Host.Groups[i].Config = r.config()
		}
	}
	return all, nil
}

// publishPolicy publishes what has changed in the policy since the configuration in force was read. The rest may be
// older than the policy in force: this file may not have been changed when another host's was, or it may have been
// restored while this daemon was down.
func (r *resource) publishPolicy(ctx context.Context, s *session, next config.Config,
) (operator.PublishedPolicy, error) {
	if next.Policy.LeftToGroup() {
		return operator.PublishedPolicy{}, nil
	}
	now := r.config()
	before := now.Rules()
	if now.Policy.LeftToGroup() {
		// the file had no policy that could have been changed: all of it may be older than the one in force
		before = next.Rules()
	}
	same := next.Rules().Digest() == before.Digest()
	g := r.all()[0]
	if same && !now.Policy.LeftToGroup() && g.View().Drift == "" {
		return operator.PublishedPolicy{}, nil
	}
	conn := g.conn.Load()
	if conn == nil && !same {
		return operator.PublishedPolicy{}, errors.New("this host is not a member of the group, so that it cannot " +
			"publish its policy")
	} else if conn == nil {
		return operator.PublishedPolicy{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.granted)
	defer cancel()
	published, err := operator.PublishPolicy(ctx, conn, r.paths(), operator.Proposal{Group: r.name, Config: next,
		By: now.Node.ID, Before: &before})
	if err != nil && same { // nothing was to be published
		return operator.PublishedPolicy{}, nil
	} else if err != nil {
		return published, err
	}
	if !same {
		r.log.Info("policy in force for the group", "revision", published.Policy.Revision, "by", published.Policy.By,
			"changed", strings.Join(published.Changed, "; "))
	}
	if len(published.Unpublished) > 0 {
		r.log.Warn("the rest of this configuration's policy is not the one in force", "reason",
			config.DescribeDifferences(published.Unpublished))
	}
	return published, nil
}

// describePublications adds to the results of groups what has been published, and what has not.
func describePublications(results []GroupReload, published map[string]operator.PublishedPolicy) {
	for i := range results {
		p := published[results[i].Name]
		results[i].Published = p.Changed
		for _, d := range p.Unpublished {
			results[i].Unpublished = append(results[i].Unpublished, d.String())
		}
	}
}
