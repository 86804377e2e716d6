// Command devstack starts and stops a local stack on this machine, without Docker: a real Kubernetes control plane,
// Temporal and Millwright. People, make and CI call devstack. Package stack starts and stops the processes; this
// package has only help texts, flags and exit codes.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"millwright/devstack/build"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/process/commandline"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	command := rootCommand()
	commandline.RefuseUnknownArguments(command)
	err := command.ExecuteContext(ctx)
	stop()
	os.Exit(reportError(err))
}

// reportError prints the error, unless the command has printed the reason already, and returns the exit code.
func reportError(err error) int {
	var said silentExitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &said):
		return int(said)
	}
	fmt.Fprintln(os.Stderr, "devstack:", err)
	return commandline.ExitCode(err)
}

// silentExitCode is the exit code of a command that has printed the reason already.
type silentExitCode int

func (e silentExitCode) Error() string { return fmt.Sprintf("exit with code %d", int(e)) }

// stackFlags are the values of the persistent flags of all commands.
type stackFlags struct{ repo, dir string }

func (p stackFlags) stackFolder() (string, error) { return stack.Folder(p.repo, p.dir) }

func (p stackFlags) openStack() (*stack.Stack, error) {
	dir, err := p.stackFolder()
	if err != nil {
		return nil, err
	}
	return stack.Open(dir)
}

func (p stackFlags) connectToCloud() (*admin.Client, error) {
	s, err := p.openStack()
	if err != nil {
		return nil, err
	}
	return admin.NewClient(s.VirtualCloudURL()), nil
}

func rootCommand() *cobra.Command {
	p := &stackFlags{}
	command := &cobra.Command{
		Use:   "devstack",
		Short: "Run Millwright's local stack",
		Long: `devstack runs a whole Millwright on this machine, without Docker and without root: etcd, kube-apiserver,
controller-manager, scheduler, simulated nodes (KWOK), Temporal with its UI, a simulated cloud (virtualcloud), our worker
and our bridge. Each is a process of its own, listens on loopback only, and keeps everything in one folder.`,
		Example: `  devstack up                      # start everything; the second time it only says where everything is
  devstack status                  # what runs; exit code 1 when something is dead
  devstack kubectl -- get machines
  devstack kill worker             # what happens then? (devstack start worker)
  devstack cloud --latency 5m      # and if the cloud is slow? (devstack cloud --reset)
  devstack down                    # stop everything; data stay for the next up`,
	}
	command.PersistentFlags().StringVar(&p.dir, "dir", "", "folder of the stack (default <repo>/.devstack)")
	command.PersistentFlags().
		StringVar(&p.repo, "repo", "", "root of the clone (default: found from the working directory)")
	command.AddCommand(
		upCommand(p), downCommand(p), statusCommand(p), logsCommand(p), kubeconfigCommand(p), kubectlCommand(p),
		killCommand(p), startCommand(p), restartCommand(p), buildCommand(p), supervisorCommand(), vanishCommand(p),
		cloudCommand(func() (*admin.Client, error) { return p.connectToCloud() }),
	)
	return command
}

// buildCommand only builds the heavy binaries, so that make and CI can build them in a separate step.
func buildCommand(p *stackFlags) *cobra.Command {
	clusterAPI := map[string]string{build.ClusterAPIFolder: ""} // minor version by argument
	for _, minor := range build.ClusterAPIMinorVersions()[1:] {
		clusterAPI[build.ClusterAPIFolder+"-"+minor] = minor
	}
	all := append(build.RequiredHeavyBinaryNames(), slices.Sorted(maps.Keys(clusterAPI))...)
	return &cobra.Command{
		Use:   "build [" + strings.Join(all, "|") + "]",
		Short: "Build the heavy binaries (Kubernetes, Temporal) unless they are cached",
		Long: `build makes the binaries that the stack runs from and prints their paths. They take minutes to build, once: they
are cached by sources and toolchain in $MILLWRIGHT_CACHE, or in "millwright" in the user's cache folder. The programs of
Cluster API (` + build.ClusterAPIFolder + `, or with an older minor version) are only built when named, or by up --cluster-api; their
folder is printed.`,
		ValidArgs: all,
		Args:      cobra.OnlyValidArgs,
		RunE: func(c *cobra.Command, names []string) error {
			repo, err := build.FindRepo(p.repo)
			if err != nil {
				return err
			}
			if len(names) == 0 {
				names = build.RequiredHeavyBinaryNames()
			}
			for _, name := range names {
				program := func() (string, error) { return build.HeavyBinaryPath(c.Context(), repo, name, c.ErrOrStderr()) }
				if minor, is := clusterAPI[name]; is {
					program = func() (string, error) {
						return build.ClusterAPIProgramsFolder(c.Context(), repo, minor, c.ErrOrStderr())
					}
				}
				path, err := program()
				if err != nil {
					return err
				}
				_, _ = fmt.Fprintln(c.OutOrStdout(), path)
			}
			return nil
		},
	}
}

// supervisorCommand is the command of the supervisor process. Only package stack runs this command.
func supervisorCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "run",
		Short:  "Be the supervisor of a stack (plan on standard input)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return stack.RunSupervisor(context.WithoutCancel(c.Context()), c.InOrStdin())
		},
	}
}
