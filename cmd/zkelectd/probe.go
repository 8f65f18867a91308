package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/config"
	"zkelectd/internal/httpapi"
)

func probeCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "probe [" + strings.Join(httpapi.ProbePaths(), "|") + "]",
		Short: "Ask the daemon on this host: exit 0 if it says yes, 1 if not",
		Long: `Probe asks the daemon on this host one of its HTTP probes, /livez by default,
where it listens by http.listen; give it the settings of the daemon. It is meant
for health checks in containers, where there is no other HTTP client. Whatever
keeps it from a clear yes is a no: the exit status is 0 or 1, and nothing else.`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: httpapi.ProbePaths(),
	}
	config.RegisterFlags(cmd.Flags())
	cmd.Flags().DurationVar(&limit, "timeout", 2*time.Second, "no answer by then is a no")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := load(cmd, nil)
		if err != nil {
			return err
		}
		if cfg.HTTP.Listen == "" {
			return errors.New("http.listen is not set, so there is nothing to ask: set it as for the daemon (--http, ZKELECTD_HTTP_LISTEN or --config)")
		}
		file, _ := config.SecretFile(cfg.HTTP.WebConfig, os.Getenv)
		web, err := httpapi.ReadWebConfig(file)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), limit)
		defer cancel()
		path := append(args, "/livez")[0]
		if err := (httpapi.Endpoint{Addr: cfg.HTTP.Listen, Web: web}).Probe(ctx, path); err != nil {
			return fmt.Errorf("%s: no: %w", path, err)
		}
		return nil
	}
	return cmd
}
