package component

import (
	"fmt"
	"strconv"

	"millwright/devstack/build"
)

// The label by which Cluster API's core filters objects, and the label's values in the stack. Core reconciles only
// objects with the value UpstreamFilterValue. Cluster API's providers reconcile all objects.
const (
	WatchFilterLabel      = "cluster.x-k8s.io/watch-filter"
	UpstreamFilterValue   = "upstream"
	MillwrightFilterValue = "millwright" // label value of Millwright's MachineSets, also used in deploy/rbac/cluster-api
)

// ClusterAPICoreUser is the user of Cluster API's core in deploy/rbac/cluster-api. In the stack, core has the user
// ClusterAPIIdentity instead.
const ClusterAPICoreUser = "system:serviceaccount:capi-system:capi-manager"

// topologyFeatureGate makes core reconcile Clusters of a ClusterClass. The webhooks of all programs need it, because
// they refuse the templates of control planes and of infrastructure without it.
const topologyFeatureGate = "ClusterTopology=true"

// coreFeatureGates are the feature gates of Cluster API's core that are off by default and on in the stack. With the
// gates RuntimeSDK and InPlaceUpdates, core calls the runtime extensions in ExtensionConfigs, and the hook
// UpdateMachine to update a Machine in place. Core also calls the hook CanUpdateMachineSet for its own
// MachineDeployments if an extension is registered for their namespace. All other feature gates have their defaults.
const coreFeatureGates = "RuntimeSDK=true,InPlaceUpdates=true," + topologyFeatureGate

// clusterAPIFilterFlags are the additional flags of worker and bridge in a stack with Cluster API; nil in any other
// stack.
func (p Plan) clusterAPIFilterFlags() []string {
	if p.ClusterAPIFolder == "" {
		return nil
	}
	return []string{
		"--cluster-api-watch-filter",
		MillwrightFilterValue,
		"--cluster-api-upstream-watch-filter",
		UpstreamFilterValue,
	}
}

// ClusterAPINames returns the names of Cluster API's components, in starting order.
func ClusterAPINames() []string {
	var names []string
	for _, c := range All() {
		if c.IsClusterAPIProgram {
			names = append(names, c.Name)
		}
	}
	return names
}

// webhooksPortName returns the name of the port at which a program of Cluster API serves webhooks.
func webhooksPortName(name string) string { return name + "-webhooks" }

// ClusterAPIWebhooksURL returns the base URL at which a program of Cluster API serves webhooks.
func (p Plan) ClusterAPIWebhooksURL(name string) string {
	return "https://" + Address(p.Ports[webhooksPortName(name)])
}

// WorkloadClusterAddress returns the loopback address of the workload clusters' API servers. The development provider
// uses the same ports (from 20000 on) in every stack, so each stack needs its own address. The last two bytes of the
// address are the port of the stack's API server.
func (p Plan) WorkloadClusterAddress() string {
	port := p.Ports[APIServer]
	return fmt.Sprintf("127.64.%d.%d", port>>8, port&0xff)
}

// clusterAPIFlags are the flags of a program of Cluster API. The program serves no metrics.
func (p Plan) clusterAPIFlags(name string) []string {
	flags := []string{
		"--kubeconfig=" + p.StackFolder().KubeconfigFile(ClusterAPIIdentity),
		"--health-addr=" + Address(p.Ports[name]),
		"--webhook-port=" + strconv.Itoa(p.Ports[webhooksPortName(name)]),
		"--webhook-cert-dir=" + p.StackFolder().clusterAPIWebhooksFolder(),
		"--diagnostics-address=0",
		"--insecure-diagnostics=true", // no certificate for diagnostics; the metrics endpoint is off
	}
	if name == build.ClusterAPICore {
		return append(flags, "--watch-filter="+UpstreamFilterValue, "--feature-gates="+coreFeatureGates)
	}
	return append(flags, "--feature-gates="+topologyFeatureGate)
}

// Environment returns the environment variables that the stack sets for a component. Options.Env can override each
// variable.
func (p Plan) Environment(name string) []string {
	if name == ClusterAPIDev {
		return []string{"POD_IP=" + p.WorkloadClusterAddress()}
	}
	return nil
}
