package operator

import (
	"context"
	"log/slog"
	"os"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/zk"
)

// Connect opens a session for a person's request. The caller has checked the credentials, and closes it with [Disconnect].
func Connect(ctx context.Context, cfg config.Config) (*zk.Session, error) {
	limit := cfg.ZooKeeper.ConnectTimeout
	if limit == 0 {
		limit = AnswerTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return zk.Open(ctx, zk.Options{
		Servers: cfg.ZooKeeper.Servers, Timeout: cfg.ZooKeeper.SessionTimeout, Access: Access(cfg, os.Getenv), Log: slog.New(slog.DiscardHandler),
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
