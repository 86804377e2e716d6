package stack

import (
	"fmt"
	"strconv"
)

// TemporalNamespace is the Temporal namespace of Millwright's workflows.
const TemporalNamespace = "millwright"

// clusterName tags the instances of this stack in the cloud.
const clusterName = "devstack"

func (p Plan) temporalFlags() []string {
	return []string{
		"--db", p.layout().path(Temporal, "temporal.db"),
		"--port", strconv.Itoa(p.Ports[Temporal]),
		"--ui-port", strconv.Itoa(p.Ports[temporalUIPort]),
		"--internal-port", strconv.Itoa(p.Ports[temporalInternalPort]),
		"--ui-namespace", TemporalNamespace,
	}
}

func (p Plan) virtualCloudFlags() []string {
	return []string{
		"--address", address(p.Ports[VirtualCloud]),
		"--data", p.layout().path(VirtualCloud),
		"--kubeconfig", p.layout().kubeconfig(VirtualCloud),
	}
}

// bootstrapFlags are those of the starter, which prepares Temporal; bootstrap.go prepares the API server.
func (p Plan) bootstrapFlags() []string {
	return append([]string{"bootstrap"}, p.temporalClientFlags()...)
}

func (p Plan) workerFlags(name, identity string) []string {
	return append([]string{
		"--kubeconfig", p.layout().kubeconfig(identity),
		"--cluster-name", clusterName,
		"--metrics-address", address(p.Ports[name]),
		"--virtualcloud-address", p.cloud(),
	}, p.temporalClientFlags()...)
}

func (p Plan) bridgeFlags(name string) []string {
	return append([]string{
		"--kubeconfig", p.layout().kubeconfig(BridgeIdentity),
		"--metrics-address", address(p.Ports[name]),
	}, p.temporalClientFlags()...)
}

func (p Plan) temporalClientFlags() []string {
	return []string{"--temporal-address", address(p.Ports[Temporal]), "--temporal-namespace", TemporalNamespace}
}

// command returns the arguments of a component; those of the options come last.
func (p Plan) command(name string) []string {
	var flags []string
	switch name {
	case Temporal:
		flags = p.temporalFlags()
	case VirtualCloud:
		flags = p.virtualCloudFlags()
	case Bootstrap:
		flags = p.bootstrapFlags()
	case Worker:
		flags = p.workerFlags(name, WorkerIdentity)
	case ProviderWorker:
		flags = append(p.workerFlags(name, ProviderIdentity), "--queues", "provider-virtual")
	case Bridge, SecondBridge:
		flags = p.bridgeFlags(name)
	default:
		flags = p.kubernetesCommand(name)
	}
	return append(flags, p.Args[name]...)
}

func (p Plan) cloud() string      { return "http://" + address(p.Ports[VirtualCloud]) }
func (p Plan) temporalUI() string { return fmt.Sprintf("http://%s", address(p.Ports[temporalUIPort])) }
