package main

import (
	"errors"
	"os/exec"

	"github.com/spf13/cobra"
)

func kubectlCommand(p *stackFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl -- <arguments>",
		Short: "Run the stack's own kubectl as the admin",
		Long: `kubectl runs the kubectl that was built with the control plane, with the stack's admin kubeconfig. Its exit code is
kubectl's. The script "kubectl" in the stack's folder does the same.`,
		Example: `  devstack kubectl -- get nodes -o wide`,
		RunE: func(c *cobra.Command, arguments []string) error {
			s, err := p.openStack()
			if err != nil {
				return err
			}
			kubectl := exec.CommandContext(c.Context(), s.KubectlPath(), arguments...)
			kubectl.Stdin, kubectl.Stdout, kubectl.Stderr = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
			err = kubectl.Run()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return silentExitCode(max(1, exit.ExitCode())) // ExitCode is -1 if a signal ended kubectl
			}
			return err
		},
	}
}
