package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"zkelectd/internal/web"
)

func probeCommand(c *command) {
	var timeout time.Duration
	c.Use = "probe [" + strings.Join(web.ProbePaths(), "|") + "]"
	c.Hidden = true
	c.Short = "Probe the daemon on this host: exit 0 for yes, 1 for no"
	c.Long = `Probe sends one of the HTTP probes, /livez by default, to the daemon on this host, at
http.listen. Give it the settings of the daemon. It is meant for health checks in
containers without another HTTP client. Anything but a clear yes is a no: the exit
status is always 0 or 1.`
	c.Args = cobra.MaximumNArgs(1)
	c.ValidArgs = web.ProbePaths()
	concernsHost(c.Command, "http.listen")
	c.Flags().DurationVar(&timeout, "timeout", 2*time.Second, "how long to wait for the answer")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		h, err := loadHost(cmd)
		if err != nil {
			return err
		}
		cfg := h.Config
		if cfg.HTTP.Listen == "" {
			return errors.New("http.listen is not set: set it as for the daemon (--http, ZKELECTD_HTTP_LISTEN or --config)")
		}
		endpoint, err := endpointOf(cfg)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		path := append(args, "/livez")[0]
		if err := endpoint.Probe(ctx, path, ""); err != nil {
			return fmt.Errorf("%s: no: %w", path, err)
		}
		return nil
	}
	c.RunE = endsWith(statusNo, c.RunE)
	c.Args = endsWith(statusNo, c.Args)
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{statusNo, err} })
}
