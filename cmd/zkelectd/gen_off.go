//go:build !gen

package main

import "github.com/spf13/cobra"

func buildCommands() []*cobra.Command { return nil }
