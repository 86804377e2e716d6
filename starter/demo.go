package main

import (
	"github.com/spf13/cobra"
)

func demoCommand() *cobra.Command {
	return &cobra.Command{Use: "demo", Short: "Show machines come and go on the local stack", RunE: func(*cobra.Command, []string) error { return nil }}
}
