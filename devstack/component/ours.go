package component

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
	"go.temporal.io/sdk/client"

	"millwright/process/connection"
)

// TemporalNamespace is the Temporal namespace of Millwright's workflows.
const TemporalNamespace = "millwright"

// ClusterName is the name of the stack's installation in task queues, in workflow IDs and on cloud instances.
const ClusterName = "devstack"

func (p Plan) temporalFlags() []string {
	flags := []string{
		"--db", p.StackFolder().Path(Temporal, "temporal.db"),
		"--port", strconv.Itoa(p.Ports[Temporal]),
		"--ui-port", strconv.Itoa(p.Ports[temporalUIPortName]),
		"--internal-port", strconv.Itoa(p.Ports[temporalInternalPortName]),
		"--ui-namespace", TemporalNamespace,
	}
	if p.RequireTemporalTLS {
		l := p.StackFolder()
		flags = append(
			flags,
			"--tls-cert",
			l.temporalServerCertificateFile(),
			"--tls-key",
			l.temporalServerKeyFile(),
			"--tls-ca",
			l.TemporalCACertificateFile(),
		)
	}
	return flags
}

func (p Plan) virtualCloudFlags() []string {
	return []string{
		"--address", Address(p.Ports[VirtualCloud]),
		"--data", p.StackFolder().Path(VirtualCloud),
		"--kubeconfig", p.StackFolder().KubeconfigFile(VirtualCloud),
	}
}

// bootstrapFlags are the arguments of the command millwright bootstrap, which prepares Temporal. Package stack prepares
// the API server.
func (p Plan) bootstrapFlags() []string {
	return append([]string{"bootstrap"}, p.temporalClientFlags()...)
}

// CommonProcessFlags are the flags that are common to all of Millwright's processes.
func (p Plan) CommonProcessFlags(name, identity string) []string {
	return append([]string{
		"--kubeconfig", p.StackFolder().KubeconfigFile(identity),
		"--cluster-name", ClusterName,
		"--metrics-address", Address(p.Ports[name]),
	}, p.temporalClientFlags()...)
}

func (p Plan) workerFlags(name, identity string) []string {
	return append(p.CommonProcessFlags(name, identity), "--virtualcloud-address", p.VirtualCloudURL())
}

// mcmFlags are the flags of a machine-controller-manager process. The process works in the namespace default, unless
// Options.Args has another namespace.
func (p Plan) mcmFlags(name, process string) []string {
	return []string{
		process,
		"--target-kubeconfig", p.StackFolder().KubeconfigFile(MCMIdentity),
		"--address", loopbackAddress, "--port", strconv.Itoa(p.Ports[name]),
		// higher than the default of 20, because few other clients use this API server
		"--kube-api-qps", "200", "--kube-api-burst", "400",
		"--v", "3",
	}
}

func (p Plan) temporalClientFlags() []string {
	flags := []string{"--temporal-address", Address(p.Ports[Temporal]), "--temporal-namespace", TemporalNamespace}
	if p.RequireTemporalTLS {
		l := p.StackFolder()
		flags = append(
			flags,
			"--temporal-tls-cert-path",
			l.TemporalClientCertificateFile(),
			"--temporal-tls-key-path",
			l.TemporalClientKeyFile(),
			"--temporal-tls-ca-path",
			l.TemporalCACertificateFile(),
		)
	}
	return flags
}

// TemporalClientOptions returns the options of a client of the stack's Temporal, without a logger.
func (p Plan) TemporalClientOptions() (client.Options, error) {
	if !p.RequireTemporalTLS { // do not use this process' environment, which may name another Temporal server
		return client.Options{HostPort: Address(p.Ports[Temporal]), Namespace: TemporalNamespace}, nil
	}
	var flags connection.Flags
	set := pflag.NewFlagSet(Temporal, pflag.ContinueOnError)
	flags.Register(set)
	if err := set.Parse(p.temporalClientFlags()); err != nil {
		return client.Options{}, fmt.Errorf("connect to Temporal: %w", err)
	}
	return flags.ClientOptions()
}

// ComponentArguments returns the arguments of a component. The arguments in Plan.Args come last.
func (p Plan) ComponentArguments(name string) []string {
	var flags []string
	switch name {
	case Temporal:
		flags = p.temporalFlags()
	case VirtualCloud:
		flags = p.virtualCloudFlags()
	case Bootstrap:
		flags = p.bootstrapFlags()
	case Worker, SecondWorker:
		flags = append(p.workerFlags(name, WorkerIdentity), p.clusterAPIFilterFlags()...)
	case ProviderWorker:
		flags = append(p.workerFlags(name, ProviderIdentity), "--queues", "provider-virtual")
	case Bridge, SecondBridge:
		flags = append(p.CommonProcessFlags(name, BridgeIdentity), p.clusterAPIFilterFlags()...)
		// with a fixed Lease identity, a restarted bridge becomes the leader at once, as in a pod
		flags = append(flags, "--identity", name)
	case MCMManager:
		flags = p.mcmFlags(name, "manager")
	case MCMMachineController:
		flags = append(
			p.mcmFlags(name, "machines"),
			"--virtualcloud-address",
			p.VirtualCloudURL(),
			"--cluster-name",
			ClusterName,
		)
	case ClusterAPICore, ClusterAPIBootstrap, ClusterAPIControlPlane, ClusterAPIDev:
		flags = p.clusterAPIFlags(name)
	default:
		if _, isExtra := p.findExtraComponent(name); !isExtra {
			flags = p.kubernetesArguments(name)
		}
	}
	return append(flags, p.Args[name]...)
}

// VirtualCloudURL returns the URL of virtualcloud.
func (p Plan) VirtualCloudURL() string { return "http://" + Address(p.Ports[VirtualCloud]) }

// TemporalUIURL returns the URL of Temporal's UI.
func (p Plan) TemporalUIURL() string { return "http://" + Address(p.Ports[temporalUIPortName]) }
