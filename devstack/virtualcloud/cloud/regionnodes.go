package cloud

import (
	"context"

	"millwright/provider/virtual"
)

// regionNodeClient registers the Nodes of some regions in clusters of their own.
type regionNodeClient struct {
	byRegion map[string]NodeClient
	others   NodeClient // cluster of all other regions
}

// NewRegionNodeClient returns a NodeClient that selects the cluster of an instance by the instance's region. The Nodes
// of a region that is not in byRegion are in the cluster others. NewRegionNodeClient sends no request.
func NewRegionNodeClient(byRegion map[string]NodeClient, others NodeClient) NodeClient {
	return regionNodeClient{byRegion, others}
}

// clientOf returns the cluster of an instance. The provider ID of an instance contains its region.
func (r regionNodeClient) clientOf(instance virtual.Instance) NodeClient {
	region, _, err := virtual.SplitProviderID(instance.ProviderID)
	if client, found := r.byRegion[region]; found && err == nil {
		return client
	}
	return r.others
}

// Register implements NodeClient.
func (r regionNodeClient) Register(ctx context.Context, instance virtual.Instance, spec virtual.Spec, bare bool) error {
	return r.clientOf(instance).Register(ctx, instance, spec, bare)
}

// Initialize implements NodeClient.
func (r regionNodeClient) Initialize(ctx context.Context, instance virtual.Instance) error {
	return r.clientOf(instance).Initialize(ctx, instance)
}

// Remove implements NodeClient.
func (r regionNodeClient) Remove(ctx context.Context, instance virtual.Instance) (bool, error) {
	return r.clientOf(instance).Remove(ctx, instance)
}

// StopKubelet implements NodeClient.
func (r regionNodeClient) StopKubelet(ctx context.Context, instance virtual.Instance) error {
	return r.clientOf(instance).StopKubelet(ctx, instance)
}
