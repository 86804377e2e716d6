package process

import (
	"github.com/spf13/pflag"

	"millwright/observe/cache"
)

// MCMFlags choose between Millwright's own behaviour and the behaviour of machine-controller-manager. Worker and bridge
// need the same MCMFlags.
type MCMFlags struct {
	BehavesAsMCM bool
}

// Register adds the flag to a set. docs/migration.md lists the effects of the flag.
func (f *MCMFlags) Register(set *pflag.FlagSet) {
	set.BoolVar(
		&f.BehavesAsMCM,
		"as-mcm",
		false,
		"behave as machine-controller-manager where Millwright differs: ignore minReadySeconds, delete the oldest machines first, replace nodes that are deleted by hand without budget, and end left-over freezes; set the same value on worker and bridge",
	)
}

// ApplyToCluster copies the flag into a cluster. Call ApplyToCluster before the caches start.
func (f *MCMFlags) ApplyToCluster(cluster *cache.Cluster) { cluster.BehavesAsMCM = f.BehavesAsMCM }
