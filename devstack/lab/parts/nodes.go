package parts

import (
	"os"
	"path/filepath"
	"strings"

	"millwright/devstack/component"
	"millwright/devstack/lab/incus"
)

// addRealMachineSettings adds the certificates, manifests and flags for real machines to a plan.
func addRealMachineSettings(plan *component.Plan, network incus.Network) error {
	l := plan.StackFolder()
	if err := os.MkdirAll(l.Path("pki"), 0o700); err != nil {
		return err
	}
	if err := writeCertificates(l, network); err != nil {
		return err
	}
	plan.ManifestFolders = append(plan.ManifestFolders, filepath.Join(plan.Repo, "devstack/lab/nodes/rbac"))
	// A machine joins with a bootstrap token. After the join the kubelet has a client certificate, and may change only
	// its own Node.
	prependFlags(plan, component.APIServer,
		"--enable-bootstrap-token-auth",
		"--client-ca-file="+caCertificatePath(l),
		"--enable-admission-plugins=NodeRestriction",
		"--kubelet-certificate-authority="+caCertificatePath(l),
		"--kubelet-client-certificate="+kubeletClientCertificatePath(l),
		"--kubelet-client-key="+kubeletClientKeyPath(l),
		"--kubelet-preferred-address-types=InternalIP",
	)
	prependFlags(plan, component.ControllerManager,
		"--controllers="+strings.Join(additionalControllers(), ","),
		"--cluster-signing-cert-file="+caCertificatePath(l),
		"--cluster-signing-key-file="+caKeyPath(l),
		"--allocate-node-cidrs",
		"--cluster-cidr="+network.PodSubnet,
		"--node-cidr-mask-size=24",
	)
	prependFlags(plan, Incusd,
		"incusd",
		"--repo", plan.Repo,
		"--dir", plan.Dir, // shows the stack's folder in process lists, as for the supervisor
		"--network", network.Name,
		"--api-server", component.Address(plan.Ports[component.APIServer]),
		"--kubeconfig", l.KubeconfigFile(component.AdminIdentity),
		"--health-address", component.Address(plan.Ports[Incusd]),
	)
	prependFlags(plan, IncusWorker, plan.CommonProcessFlags(IncusWorker, component.ProviderIdentity)...)
	return nil
}

// additionalControllers are the controllers that real kubelets and their pods need in addition to the controllers of
// every stack. The controllers handle certificates, bootstrap tokens, pod address ranges and endpoints.
func additionalControllers() []string {
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
