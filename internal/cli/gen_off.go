//go:build !gen

package cli

import "github.com/spf13/cobra"

func buildCommands() []*cobra.Command { return nil }
