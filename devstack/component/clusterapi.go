package component

import (
	"fmt"
	"strconv"

	"millwright/devstack/build"
)

// The label by which Cluster API's core filters objects, and the values of this label in the stack. Core handles only
// objects with the value UpstreamFilter; Cluster API's providers handle all objects.
const (
	WatchFilterLabel = "cluster.x-k8s.io/watch-filter"
	UpstreamFilter   = "upstream"
	OurFilter        = "millwright" // value on Millwright's MachineSets, also in deploy/rbac/cluster-api
)

// ClusterAPICoreUser is the user of Cluster API's core in deploy/rbac/cluster-api. In the stack, ClusterAPIIdentity
// takes its place.
const ClusterAPICoreUser = "system:serviceaccount:capi-system:capi-manager"

// coreFeatures are the feature gates of Cluster API's core that are off by default and on in the stack. With them, core
// calls the runtime extensions in ExtensionConfigs, and the hook UpdateMachine to update a Machine in place. Core also
// calls the hook CanUpdateMachineSet for its own MachineDeployments if an extension is registered for their namespace.
// The other gates have their defaults.
const coreFeatures = "RuntimeSDK=true,InPlaceUpdates=true"

// clusterAPIFilters are the additional flags of worker and bridge in a stack with Cluster API; nil in any other stack.
func (p Plan) clusterAPIFilters() []string {
	if p.ClusterAPI == "" {
		return nil
	}
	return []string{"--cluster-api-watch-filter", OurFilter, "--cluster-api-upstream-watch-filter", UpstreamFilter}
}

// ClusterAPI returns the names of Cluster API's components, in starting order.
func ClusterAPI() []string {
	var names []string
	for _, c := range All() {
		if c.ClusterAPI {
			names = append(names, c.Name)
		}
	}
	return names
}

// webhooksPort is the name of the port at which a program of Cluster API serves webhooks.
func webhooksPort(name string) string { return name + "-webhooks" }

// ClusterAPIWebhooks returns the URL of the webhooks of a program of Cluster API.
func (p Plan) ClusterAPIWebhooks(name string) string {
	return "https://" + Address(p.Ports[webhooksPort(name)])
}

// WorkloadClusters returns the loopback address of the API servers of the development provider's workload clusters.
// Their ports begin at 20000 in every stack, so each stack has its own address: its last two bytes are the port of the
// stack's API server.
func (p Plan) WorkloadClusters() string {
	port := p.Ports[APIServer]
	return fmt.Sprintf("127.64.%d.%d", port>>8, port&0xff)
}

// clusterAPIFlags are the flags of a program of Cluster API. It serves no metrics.
func (p Plan) clusterAPIFlags(name string) []string {
	flags := []string{
		"--kubeconfig=" + p.Layout().Kubeconfig(ClusterAPIIdentity),
		"--health-addr=" + Address(p.Ports[name]),
		"--webhook-port=" + strconv.Itoa(p.Ports[webhooksPort(name)]),
		"--webhook-cert-dir=" + p.Layout().clusterAPIWebhooks(),
		"--diagnostics-address=0",
		"--insecure-diagnostics=true", // needs no certificate; metrics are not served anyway
	}
	if name == build.ClusterAPICore {
		flags = append(flags, "--watch-filter="+UpstreamFilter, "--feature-gates="+coreFeatures)
	}
	return flags
}

// Environment returns the additional environment variables of a component. The variables of the options come last.
func (p Plan) Environment(name string) []string {
	if name == ClusterAPIDev {
		return []string{"POD_IP=" + p.WorkloadClusters()}
	}
	return nil
}
