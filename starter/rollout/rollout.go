// Package rollout has the commands that show and change rollouts.
package rollout

import (
	"github.com/spf13/cobra"

	"millwright/decide/request"
	"millwright/starter/kubecli"
)

// Command returns the command rollout.
func Command(d kubecli.Environment) *cobra.Command {
	f := &rolloutCommand{ObjectFlags: kubecli.ObjectFlags{Environment: d, Kind: request.KindMachineDeployment}}
	c := &cobra.Command{
		Use:   "rollout",
		Short: "Show rollouts of templates; stop, continue and undo them",
		Long: `rollout shows how many machines of a MachineDeployment have its newest template, what the others wait for and what comes next,
and changes the rollout. Requests (pause, cancel and so on) write the MachineDeployment, with actor and reason; kubectl can do the
same. The commands do not need Temporal; without Temporal, requests take effect later.

A deployment is given as NAMESPACE/NAME, or as NAME with --namespace. One of Cluster API that Millwright reconciles is found, too; if both
API groups have one of this name, give machinedeployment.cluster.x-k8s.io/NAMESPACE/NAME. All clock times are UTC.`,
		Example: `  millwright rollout list -A
  millwright rollout status shop/web
  millwright rollout plan shop/web
  millwright rollout start shop/web --reason "new base image"
  millwright rollout cancel shop/web --reason "machines do not join"
  millwright rollout undo shop/web`,
	}
	f.RegisterFlags(c)
	c.PersistentFlags().
		StringVar(&f.targetKubeconfig, "target-kubeconfig", "", "kubeconfig of the cluster that the machines join as nodes; only in-place updates need it; empty: nodes are not read")
	c.PersistentFlags().
		BoolVar(&f.actsAsMCM, "as-mcm", false, "worker and bridge run with --as-mcm: minReadySeconds has no effect")
	c.AddCommand(f.listCommand(), f.statusCommand(), f.watchCommand(), f.historyCommand(), f.planCommand())
	for _, h := range helpOfRequests() {
		c.AddCommand(f.RequestCommand(h, f.readSubject))
	}
	return c
}
