package process

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/observe/cache"
	"millwright/observe/capi"
)

// ClusterAPIFlags select the MachineDeployments and MachineSets of Cluster API that Millwright reconciles. Worker and
// bridge need the same ClusterAPIFlags.
type ClusterAPIFlags struct{ capi.Settings }

// Register adds the flags to a set.
func (f *ClusterAPIFlags) Register(set *pflag.FlagSet) {
	set.StringVar(
		&f.WatchFilter,
		"cluster-api-watch-filter",
		"",
		"value of the label "+clusterv1.WatchLabel+" of the MachineDeployments and MachineSets of Cluster API that Millwright reconciles; Cluster API's own controllers must run with another --watch-filter; empty means that Millwright reconciles none; set the same value on worker and bridge",
	)
	set.StringVar(
		&f.UpstreamWatchFilter,
		"cluster-api-upstream-watch-filter",
		"",
		"value of --watch-filter of Cluster API's own controllers; Millwright writes it as label "+clusterv1.WatchLabel+" on the Machines that it creates and on the objects that it clones from templates; empty means no label; set the same value on worker and bridge",
	)
}

// WatchClusterAPI adds the objects of Cluster API to the caches of a cluster. WatchClusterAPI returns nil if Millwright
// reconciles no objects of Cluster API. Call WatchClusterAPI before the caches start. WatchClusterAPI returns an error
// if the API server does not serve cluster.x-k8s.io/v1beta2.
func (f *ClusterAPIFlags) WatchClusterAPI(
	ctx context.Context,
	cluster *cache.Cluster,
	config *rest.Config,
) (*capi.Cache, error) {
	switch {
	case f.WatchFilter == "" && f.UpstreamWatchFilter != "":
		return nil, errors.New("--cluster-api-upstream-watch-filter: it has no effect without --cluster-api-watch-filter")
	case f.WatchFilter == "":
		return nil, nil
	case f.WatchFilter == f.UpstreamWatchFilter:
		return nil, fmt.Errorf(
			"--cluster-api-watch-filter: %q is the filter of Cluster API's own controllers, which would reconcile the same objects",
			f.WatchFilter,
		)
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if _, err := served.ServerResourcesForGroupVersion(clusterv1.GroupVersion.String()); err != nil {
		return nil, fmt.Errorf(
			"--cluster-api-watch-filter: is Cluster API installed? ask for %s: %w",
			clusterv1.GroupVersion,
			err,
		)
	}
	client, err := capi.NewClient(config)
	if err != nil {
		return nil, err
	}
	return capi.WatchObjects(ctx, cluster, client, f.Settings)
}
