package main

import "github.com/spf13/cobra"

func rolloutCommand(d door) *cobra.Command {
	f := &rollouts{door: d}
	c := &cobra.Command{
		Use:   "rollout",
		Short: "See how a deployment comes to its newest template, and stop, continue or undo that",
		Long: `rollout shows how far the machines of a MachineDeployment have come to its newest template, what holds them up and what would
come next, and changes it. Its verbs write the MachineDeployment, each with who wants it and why; the same can be done with
kubectl. All of it works when Temporal is away; verbs are acted upon when it is back.

A deployment is given as NAMESPACE/NAME, or as NAME with --namespace. All clock times are UTC.`,
		Example: `  starter rollout status shop/web
  starter rollout plan shop/web
  starter rollout start shop/web --reason "new base image"
  starter rollout cancel shop/web --reason "machines do not join"
  starter rollout undo shop/web`,
	}
	f.register(c)
	c.AddCommand(f.statusCommand(), f.watchCommand(), f.historyCommand(), f.planCommand())
	for _, s := range steerings() {
		c.AddCommand(f.verbCommand(s))
	}
	return c
}
