package daemon

import (
	"io"
	"log/slog"
	"os"
	"time"

	"zkelectd/internal/config"
	"zkelectd/internal/operator/status"
	"zkelectd/internal/sys/asynclog"
)

// NewLogger returns a logger to standard error, with a level that a reload can change. It never waits for a reader of its
// output, except in flush at the end.
func NewLogger(cfg config.Log) (log *slog.Logger, level *slog.LevelVar, flush func()) {
	level = new(slog.LevelVar)
	level.UnmarshalText([]byte(cfg.Level)) // checked with the configuration
	opt := &slog.HandlerOptions{Level: level}
	out := asynclog.New(os.Stderr, func(lost int64) { log.Warn("log lines dropped: standard error is not read fast enough", "lines", lost) })
	log = slog.New(slog.NewTextHandler(out, opt))
	if cfg.Format == "json" {
		log = slog.New(slog.NewJSONHandler(printableJSON{out}, opt))
	}
	return log, level, func() { out.Close(time.Second) }
}

// printableJSON is a writer for a log in JSON that escapes terminal control sequences. Each line comes in one Write.
type printableJSON struct{ io.Writer }

func (w printableJSON) Write(line []byte) (int, error) {
	if _, err := w.Writer.Write(status.PrintableJSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
