// Package operator submits operator requests, publishes policies, plans repairs, and reads the
// group and its history. The commands and the HTTP API share it. What a request changes is planned by package request.
package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"zkelectd/internal/cluster"
	"zkelectd/internal/config"
	"zkelectd/internal/operator/losses"
	"zkelectd/internal/work/fencer"
	"zkelectd/internal/zk"
	"zkelectd/internal/zk/sasl"
)

// Connect opens a session for a person's request. The caller has checked the credentials, and closes it with
// [Disconnect].
func Connect(ctx context.Context, cfg config.Config) (*zk.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(cfg.ZooKeeper.ConnectTimeout, AnswerTimeout))
	defer cancel()
	return zk.Open(ctx, zk.Options{
		Servers: cfg.ZooKeeper.Servers, Timeout: cfg.ZooKeeper.SessionTimeout, Access: Access(cfg, os.Getenv),
		Log: slog.New(slog.DiscardHandler),
	})
}

// Disconnect closes a session, without an error: if it fails, the server ends the session.
func Disconnect(ctx context.Context, s *zk.Session) {
	limit := 2 * time.Second
	if ctx.Err() != nil {
		limit = 200 * time.Millisecond // the user has interrupted the command
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	s.Close(ctx) // if it fails, the server ends the session
}

// AnswerTimeout bounds how long a command waits for a connection, and for one operation: a person waits for its output.
const AnswerTimeout = 10 * time.Second

// Access returns the ZooKeeper credentials and TLS files for c. getenv returns the daemon's environment, which says
// where systemd has put the unit's credentials.
func Access(c config.Config, getenv func(string) string) zk.Access {
	z := c.ZooKeeper
	a := zk.Access{ACL: zk.ACL(z.ACL), Identities: z.Identities}
	a.Auth.Path, a.Auth.Systemd = config.SecretFile(z.Auth.File, getenv)
	a.SASL.Password.Path, a.SASL.Password.Systemd = config.SecretFile(z.SASL.PasswordFile, getenv)
	if z.SASL.Kerberos() {
		a.SASL.Identity = z.SASL.Identity
		a.SASL.Kerberos = sasl.Kerberos{
			CredentialCache: z.SASL.CredentialCache, Principal: z.SASL.Principal,
			ServerPrincipal: z.SASL.ServerPrincipal, Krb5Conf: z.SASL.Krb5Conf,
		}
		a.SASL.Kerberos.Keytab, a.SASL.Kerberos.Systemd = config.SecretFile(z.SASL.Keytab, getenv)
	}
	a.TLS = zk.TLS{Enabled: z.TLS.Enabled(), ServerName: z.TLS.ServerName}
	a.TLS.CA, _ = config.SecretFile(z.TLS.CA, getenv)
	a.TLS.Cert, _ = config.SecretFile(z.TLS.Cert, getenv)
	a.TLS.Key, _ = config.SecretFile(z.TLS.Key, getenv)
	return a
}

// EncodeAccess encodes what the guard needs to close a session after the daemon's death: file names, no secrets.
func EncodeAccess(a zk.Access) json.RawMessage {
	data, err := json.Marshal(a)
	if err != nil {
		return nil // unreachable: the fields are plain strings
	}
	return data
}

// Fencing returns how a configuration fences nodes.
func Fencing(c config.Config) fencer.Config {
	out := fencer.Config{Timeout: c.Fencing.Timeout}
	for i, l := range c.Fencing.Levels {
		out.Levels = append(out.Levels, fencer.Level{
			Setting: fmt.Sprintf("fencing.levels[%d]", i), Command: l.Command, Agent: l.Agent, Options: l.Options,
			Secrets: l.Secrets, Nodes: l.Nodes,
		})
	}
	return out
}

// Losses returns what becomes of a group with this configuration after each loss. alone is set if it is known that no
// other member may lead.
func Losses(c config.Config, b cluster.Budget, alone bool) []losses.Loss {
	hooks := 0
	for _, argv := range [][]string{c.Hooks.PostStop, c.Hooks.OnChange} { // those that the guard runs
		if len(argv) > 0 {
			hooks++
		}
	}
	_, misfit := b.NewReset(0)
	var fencing time.Duration
	if f := Fencing(c); f.Enabled() && c.Fencing.Required {
		fencing = f.Limit()
	}
	return losses.Table(losses.Config{
		Budget: b, LostAfter: c.Election.LostAfter, Hooks: hooks, Alone: alone, Confirm: c.Policy.Confirm != "",
		Fencing: fencing, SkipWait: c.Fencing.SkipWait, Failsafe: c.Failsafe.Enabled, FailsafeMax: c.Failsafe.Max,
		DeviceUsed: c.Device.Used() && misfit == nil, DeviceRequired: c.Device.Mode == config.DeviceRequired,
	})
}
