package parts

import (
	"os"
	"path/filepath"
	"strings"

	"millwright/devstack/component"
	"millwright/devstack/lab/incus"
)

// completeNodes adds what real machines need of the control plane.
func completeNodes(plan *component.Plan, network incus.Network) error {
	l := plan.Layout()
	if err := os.MkdirAll(l.Path("pki"), 0o700); err != nil {
		return err
	}
	if err := writeCertificates(l, network); err != nil {
		return err
	}
	plan.Manifests = append(plan.Manifests, filepath.Join(plan.Repo, "devstack/lab/nodes/rbac"))
	// machines join by bootstrap token, then each kubelet has a certificate and may change its own node only
	prependFlags(plan, component.APIServer,
		"--enable-bootstrap-token-auth",
		"--client-ca-file="+caPath(l),
		"--enable-admission-plugins=NodeRestriction",
		"--kubelet-certificate-authority="+caPath(l),
		"--kubelet-client-certificate="+kubeletClientPath(l),
		"--kubelet-client-key="+kubeletClientKeyPath(l),
		"--kubelet-preferred-address-types=InternalIP",
	)
	prependFlags(plan, component.ControllerManager,
		"--controllers="+strings.Join(machineControllers(), ","),
		"--cluster-signing-cert-file="+caPath(l),
		"--cluster-signing-key-file="+caKeyPath(l),
		"--allocate-node-cidrs",
		"--cluster-cidr="+network.Pods,
		"--node-cidr-mask-size=24",
	)
	prependFlags(plan, Incusd,
		"incusd",
		"--repo", plan.Repo,
		"--dir", plan.Dir, // lists of processes then show the stack of the process, like that of the supervisor
		"--network", network.Name,
		"--api-server", component.Address(plan.Ports[component.APIServer]),
		"--kubeconfig", l.Kubeconfig(component.Admin),
		"--health-address", component.Address(plan.Ports[Incusd]),
	)
	prependFlags(plan, IncusWorker, plan.ProcessFlags(IncusWorker, component.ProviderIdentity)...)
	return nil
}

// machineControllers are the controllers that real kubelets and clients of their pods need besides those of every
// stack: for certificates, for files and addresses of pods.
func machineControllers() []string {
	return []string{
		"bootstrap-signer-controller",
		"certificatesigningrequest-approving-controller",
		"certificatesigningrequest-cleaner-controller",
		"certificatesigningrequest-signing-controller",
		"endpointslice-controller",
		"node-ipam-controller",
		"root-ca-certificate-publisher-controller",
		"token-cleaner-controller",
	}
}
