package component

import (
	"fmt"
	"strconv"

	"millwright/devstack/build"
)

// The label that Cluster API's core filters its objects by, and the value that it has in the stack. Core handles no
// object with another value or without one; the providers handle all.
const (
	WatchFilterLabel = "cluster.x-k8s.io/watch-filter"
	UpstreamFilter   = "upstream"
	OurFilter        = "millwright" // of the MachineSets that Millwright reconciles; deploy/rbac/cluster-api has it, too
)

// ClusterAPICoreUser is the user of Cluster API's core in deploy/rbac/cluster-api. In the stack that is
// ClusterAPIIdentity.
const ClusterAPICoreUser = "system:serviceaccount:capi-system:capi-manager"

// coreFeatures are the feature gates of Cluster API's core that are off unless a flag says otherwise, and on in the
// stack: core calls the runtime extensions that an ExtensionConfig names, and the one with the hook UpdateMachine to
// update a Machine in place. Core then calls the hook CanUpdateMachineSet for its own MachineDeployments, too, if an
// extension is registered for their namespace. The other gates stay as released.
const coreFeatures = "RuntimeSDK=true,InPlaceUpdates=true"

// clusterAPIFilters are the flags of our worker and bridge beside Cluster API; none without it.
func (p Plan) clusterAPIFilters() []string {
	if p.ClusterAPI == "" {
		return nil
	}
	return []string{"--cluster-api-watch-filter", OurFilter, "--cluster-api-upstream-watch-filter", UpstreamFilter}
}

// ClusterAPI returns the components that are Cluster API, in starting order.
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

// WorkloadClusters returns the address of the API servers of workload clusters of the development provider. They have
// ports from 20000 on in every stack, so each stack has an address of its own on loopback: the last two numbers are the
// port of its API server.
func (p Plan) WorkloadClusters() string {
	port := p.Ports[APIServer]
	return fmt.Sprintf("127.64.%d.%d", port>>8, port&0xff)
}

// clusterAPIFlags are those of a program of Cluster API. It serves no metrics.
func (p Plan) clusterAPIFlags(name string) []string {
	flags := []string{
		"--kubeconfig=" + p.Layout().Kubeconfig(ClusterAPIIdentity),
		"--health-addr=" + Address(p.Ports[name]),
		"--webhook-port=" + strconv.Itoa(p.Ports[webhooksPort(name)]),
		"--webhook-cert-dir=" + p.Layout().clusterAPIWebhooks(),
		"--diagnostics-address=0",
		"--insecure-diagnostics=true", // no certificate for what is not served
	}
	if name == build.ClusterAPICore {
		flags = append(flags, "--watch-filter="+UpstreamFilter, "--feature-gates="+coreFeatures)
	}
	return flags
}

// Environment returns what a component has in its environment besides; that of the options comes after it.
func (p Plan) Environment(name string) []string {
	if name == ClusterAPIDev {
		return []string{"POD_IP=" + p.WorkloadClusters()}
	}
	return nil
}
