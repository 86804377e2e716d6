package component

import "strconv"

// TemporalNamespace is the Temporal namespace of Millwright's workflows.
const TemporalNamespace = "millwright"

// ClusterName is the name of this stack's installation: in its task queues and workflow IDs, and on its instances in the cloud.
const ClusterName = "devstack"

func (p Plan) temporalFlags() []string {
	return []string{
		"--db", p.Layout().Path(Temporal, "temporal.db"),
		"--port", strconv.Itoa(p.Ports[Temporal]),
		"--ui-port", strconv.Itoa(p.Ports[temporalUIPort]),
		"--internal-port", strconv.Itoa(p.Ports[temporalInternalPort]),
		"--ui-namespace", TemporalNamespace,
	}
}

func (p Plan) virtualCloudFlags() []string {
	return []string{
		"--address", Address(p.Ports[VirtualCloud]),
		"--data", p.Layout().Path(VirtualCloud),
		"--kubeconfig", p.Layout().Kubeconfig(VirtualCloud),
	}
}

// bootstrapFlags are those of the starter, which prepares Temporal; bootstrap.go prepares the API server.
func (p Plan) bootstrapFlags() []string {
	return append([]string{"bootstrap"}, p.temporalClientFlags()...)
}

func (p Plan) workerFlags(name, identity string) []string {
	return append([]string{
		"--kubeconfig", p.Layout().Kubeconfig(identity),
		"--cluster-name", ClusterName,
		"--metrics-address", Address(p.Ports[name]),
		"--virtualcloud-address", p.Cloud(),
	}, p.temporalClientFlags()...)
}

func (p Plan) bridgeFlags(name string) []string {
	return append([]string{
		"--kubeconfig", p.Layout().Kubeconfig(BridgeIdentity),
		"--cluster-name", ClusterName,
		"--metrics-address", Address(p.Ports[name]),
	}, p.temporalClientFlags()...)
}

func (p Plan) temporalClientFlags() []string {
	return []string{"--temporal-address", Address(p.Ports[Temporal]), "--temporal-namespace", TemporalNamespace}
}

// Command returns the arguments of a component; those of the options come last.
func (p Plan) Command(name string) []string {
	var flags []string
	switch name {
	case Temporal:
		flags = p.temporalFlags()
	case VirtualCloud:
		flags = p.virtualCloudFlags()
	case Bootstrap:
		flags = p.bootstrapFlags()
	case Worker, SecondWorker:
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

// Cloud returns the URL of virtualcloud.
func (p Plan) Cloud() string { return "http://" + Address(p.Ports[VirtualCloud]) }

// TemporalUI returns the URL of Temporal's UI.
func (p Plan) TemporalUI() string { return "http://" + Address(p.Ports[temporalUIPort]) }
