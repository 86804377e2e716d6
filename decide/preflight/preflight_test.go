package preflight_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/preflight"
)

// passingFacts returns facts for which every check passes: an available control plane with three replicas, and
// machines of the same version that join by kubeadm.
func passingFacts(changes ...func(*preflight.Facts)) preflight.Facts {
	o := preflight.Facts{
		ControlPlane: &preflight.ControlPlane{
			Kind:      "KubeadmControlPlane",
			Name:      "ns1/cp1",
			Version:   "v1.26.2",
			Replicas:  3,
			Available: 3,
		},
		Machines: preflight.MachineFacts{Version: "v1.26.2", Kubeadm: true},
		Settings: preflight.Settings{Checks: []string{preflight.CheckAll}, RequireReplicas: true},
	}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func withStrictChecks(o *preflight.Facts) { o.Settings.Strict = true }
func withSkippedChecks(names string) func(*preflight.Facts) {
	return func(o *preflight.Facts) { o.Settings.Skip = names }
}

func withMachineVersion(v string) func(*preflight.Facts) {
	return func(o *preflight.Facts) { o.Machines.Version = v }
}

func withControlPlaneVersion(v string) func(*preflight.Facts) {
	return func(o *preflight.Facts) { o.ControlPlane.Version = v }
}

func withAvailableReplicas(n int) func(*preflight.Facts) {
	return func(o *preflight.Facts) { o.ControlPlane.Available = n }
}

func withChecks(on ...string) func(*preflight.Facts) {
	return func(o *preflight.Facts) { o.Settings.Checks = on }
}

func withProvisioningControlPlane(o *preflight.Facts) { o.ControlPlane.Provisioning = true }
func withUpgradingControlPlane(o *preflight.Facts)    { o.ControlPlane.Upgrading = true }
func withoutKubeadm(o *preflight.Facts)               { o.Machines.Kubeadm = false }
func withClusterTopology(o *preflight.Facts)          { o.ControlPlane.Topology = true }

func withPendingVersion(v string) func(*preflight.Facts) {
	return func(o *preflight.Facts) { o.ControlPlane.Topology, o.ControlPlane.Pending = true, v }
}

func failedCheckNames(failures []preflight.CheckFailure) string {
	var names []string
	for _, f := range failures {
		if strings.Contains(f.Why, "cannot be read") {
			f.Check = "invalid " + f.Check
		}
		names = append(names, f.Check)
	}
	return strings.Join(names, ", ")
}

func TestPreflightChecks(t *testing.T) {
	const (
		cp, kube, adm = preflight.CheckControlPlaneIsStable, preflight.CheckKubernetesVersionSkew, preflight.CheckKubeadmVersionSkew
		same          = preflight.CheckControlPlaneVersionSkew
		invalid       = "invalid " + kube + ", invalid " + adm
	)
	for _, row := range []struct {
		name string
		o    preflight.Facts
		want string
	}{
		{"no control plane is configured", preflight.Facts{Settings: passingFacts().Settings, Machines: passingFacts(withMachineVersion("v9.9.9")).Machines}, ""},
		{"the control plane has no version", passingFacts(withControlPlaneVersion(""), withMachineVersion("v1.99.0")), ""},
		{"its version makes no sense", passingFacts(withControlPlaneVersion("latest")), invalid},
		{"nor does one with nothing but a major", passingFacts(withControlPlaneVersion("v1")), invalid},
		{"whether or not the set has one", passingFacts(withControlPlaneVersion("latest"), withMachineVersion("")), invalid},
		{"the set skips all", passingFacts(withAvailableReplicas(0), withControlPlaneVersion("latest"), withSkippedChecks("All")), ""},
		{"provisioning", passingFacts(withStrictChecks, withProvisioningControlPlane), cp},
		{"provisioning is no failure by the document, when the replicas are there", passingFacts(withProvisioningControlPlane), ""},
		{"upgrading", passingFacts(withStrictChecks, withUpgradingControlPlane), cp},
		{"upgrading, one replica short: by the document", passingFacts(withUpgradingControlPlane, withAvailableReplicas(2)), cp},
		{"the topology wants another version", passingFacts(withStrictChecks, withPendingVersion("v1.27.0")), cp},
		{"another version of the topology is no failure by the document", passingFacts(withPendingVersion("v1.27.0")), ""},
		{"the topology is on its way to a version between", passingFacts(withStrictChecks, withPendingVersion("v1.27.0"), withSkippedChecks(same)), cp},
		{"upgrading, and the check is skipped", passingFacts(withStrictChecks, withUpgradingControlPlane, withSkippedChecks(cp)), ""},
		{"one of three replicas is away: no failure of Cluster API's code", passingFacts(withStrictChecks, withAvailableReplicas(2), func(o *preflight.Facts) { o.Settings.RequireReplicas = false }), ""},
		{"stable", passingFacts(), ""},
		{"stable, strictly", passingFacts(withStrictChecks), ""},
		{"one that counts no replicas", passingFacts(withStrictChecks, func(o *preflight.Facts) { o.ControlPlane.Replicas, o.ControlPlane.Available = 0, 0 }), ""},
		{"more than it shall have, in the middle of an update", passingFacts(withAvailableReplicas(4)), ""},
		{"the version that the topology wants now is reached", passingFacts(withStrictChecks, withClusterTopology), ""},
		{"the set has no version", passingFacts(withMachineVersion("")), ""},
		{"the set's version makes no sense", passingFacts(withMachineVersion("v1.26.2.1")), invalid},
		{"nor has it a number", passingFacts(withMachineVersion("v1.x.2"), withoutKubeadm), "invalid " + kube},
		{"a minor version ahead", passingFacts(withMachineVersion("v1.27.0"), withoutKubeadm), kube},
		{"four minor versions behind", passingFacts(withMachineVersion("v1.22.0"), withoutKubeadm), kube},
		{"another major version", passingFacts(withMachineVersion("v2.26.2"), withoutKubeadm), kube},
		{"four behind, and the check is skipped", passingFacts(withMachineVersion("v1.22.0"), withSkippedChecks(kube+","+adm)), ""},
		{"three behind", passingFacts(withMachineVersion("v1.23.17"), withoutKubeadm), ""},
		{"a young control plane has no version below zero", passingFacts(withControlPlaneVersion("v1.2.0"), withMachineVersion("v1.0.0"), withoutKubeadm), ""},
		{"the patch does not count", passingFacts(withMachineVersion("v1.26.9"), withStrictChecks), ""},
		{"nor do pre-release and build", passingFacts(withControlPlaneVersion("v1.26.2+vendor-1.4"), withMachineVersion("1.26.2-rc.1"), withStrictChecks), ""},
		{"kubeadm two minor versions behind", passingFacts(withMachineVersion("v1.24.0")), adm},
		{"kubeadm one behind is near enough by the document", passingFacts(withMachineVersion("v1.25.5")), ""},
		{"kubeadm one behind, strictly", passingFacts(withMachineVersion("v1.25.5"), withStrictChecks), adm},
		{"kubeadm two ahead fails both", passingFacts(withMachineVersion("v1.28.0")), kube + ", " + adm},
		{"they do not join by kubeadm", passingFacts(withMachineVersion("v1.24.0"), withStrictChecks, withoutKubeadm), ""},
		{"kubeadm differs, and the check is skipped", passingFacts(withMachineVersion("v1.24.0"), withStrictChecks, withSkippedChecks(" "+adm+" ,Other")), ""},
		{"the same minor version", passingFacts(withMachineVersion("v1.26.0"), withStrictChecks), ""},
		{"another patch version, and the check is skipped", passingFacts(withStrictChecks, withClusterTopology, withMachineVersion("v1.26.1"), withSkippedChecks(same)), ""},
		{"no topology", passingFacts(withStrictChecks, withMachineVersion("v1.26.1")), ""},
		{"a topology and another patch version", passingFacts(withStrictChecks, withClusterTopology, withMachineVersion("v1.26.1")), same},
		{"a topology and another build", passingFacts(withStrictChecks, withClusterTopology, withMachineVersion("v1.26.2+vendor.1")), same},
		{"another patch version is no failure by the document", passingFacts(withClusterTopology, withMachineVersion("v1.26.1")), ""},
		{"a topology, and the set has no version", passingFacts(withStrictChecks, withClusterTopology, withMachineVersion("")), ""},
		{"a topology, and the control plane has no version", passingFacts(withStrictChecks, withClusterTopology, withControlPlaneVersion("")), ""},
		{"a topology and the same version", passingFacts(withStrictChecks, withClusterTopology), ""},
		{"no check is turned on", passingFacts(withAvailableReplicas(0), withControlPlaneVersion("latest"), withChecks()), ""},
		{"all that fail are told", passingFacts(withAvailableReplicas(1), withMachineVersion("v1.20.0")), cp + ", " + kube + ", " + adm},
	} {
		t.Run(row.name, func(t *testing.T) {
			failures := preflight.Decide(row.o)
			assert.Equal(t, row.want, failedCheckNames(failures))
			assert.Equal(t, failures, preflight.Decide(row.o), "same input, another answer")
			for _, f := range failures {
				assert.Contains(t, f.Why, `("`+f.Check+`" preflight check failed)`)
			}
		})
	}
}

func TestWhichPreflightChecksRun(t *testing.T) {
	all := preflight.CheckControlPlaneIsStable + ", " + preflight.CheckKubernetesVersionSkew + ", " + preflight.CheckKubeadmVersionSkew
	broken := func(changes ...func(*preflight.Facts)) preflight.Facts {
		return passingFacts(
			append([]func(*preflight.Facts){withAvailableReplicas(0), withMachineVersion("v1.20.0")}, changes...)...)
	}
	for _, row := range []struct {
		name, want string
		o          preflight.Facts
	}{
		{"all", all, broken()},
		{"one", preflight.CheckKubernetesVersionSkew, broken(withChecks(preflight.CheckKubernetesVersionSkew))},
		{"all, and all skipped", "", broken(withSkippedChecks("All"))},
		{"one, and all skipped", "", broken(withChecks(preflight.CheckKubernetesVersionSkew), withSkippedChecks("KubeadmVersionSkew, All"))},
		{"all, and one skipped", preflight.CheckControlPlaneIsStable + ", " + preflight.CheckKubernetesVersionSkew, broken(withSkippedChecks("KubeadmVersionSkew"))},
		{"one, and that one skipped", "", broken(withChecks(preflight.CheckControlPlaneIsStable), withSkippedChecks("ControlPlaneIsStable"))},
		{"a name that nobody knows skips nothing", all, broken(withSkippedChecks("all,,Something"))},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, failedCheckNames(preflight.Decide(row.o))) })
	}
}

func TestSentenceOfEachCheckFailure(t *testing.T) {
	for _, row := range []struct {
		want string
		o    preflight.Facts
	}{
		{`KubeadmControlPlane ns1/cp1 has 2 of 3 replicas available ("ControlPlaneIsStable" preflight check failed)`, passingFacts(withAvailableReplicas(2))},
		{`KubeadmControlPlane ns1/cp1 has a pending version upgrade to v1.27.3 ("ControlPlaneIsStable" preflight check failed)`, passingFacts(withStrictChecks, withPendingVersion("v1.27.3"))},
		{`MachineSet version (v1.26.1) is not yet the same as the ControlPlane version (v1.26.2), waiting for version to be propagated to the MachineSet ("ControlPlaneVersionSkew" preflight check failed)`, passingFacts(withStrictChecks, withClusterTopology, withMachineVersion("v1.26.1"))},
		{`KubeadmControlPlane ns1/cp1 is provisioning ("ControlPlaneIsStable" preflight check failed)`, passingFacts(withStrictChecks, withProvisioningControlPlane)},
		{`KubeadmControlPlane ns1/cp1 is upgrading ("ControlPlaneIsStable" preflight check failed)`, passingFacts(withStrictChecks, withUpgradingControlPlane)},
		{`MachineSet version (1.27.0) and ControlPlane version (1.26.2) do not conform to the kubernetes version skew policy as MachineSet version is higher than ControlPlane version ("KubernetesVersionSkew" preflight check failed)`, passingFacts(withMachineVersion("v1.27.0"))},
		{`MachineSet version (1.22.1) and ControlPlane version (1.26.2) do not conform to the kubernetes version skew policy as MachineSet version is more than 3 minor versions older than the ControlPlane version ("KubernetesVersionSkew" preflight check failed)`, passingFacts(withMachineVersion("v1.22.1"), withoutKubeadm)},
		{`MachineSet version (1.25.5) and ControlPlane version (1.26.2) do not conform to kubeadm version skew policy as kubeadm only supports joining with the same major+minor version as the control plane ("KubeadmVersionSkew" preflight check failed)`, passingFacts(withMachineVersion("v1.25.5"), withStrictChecks)},
		{`MachineSet version (1.24.5) and ControlPlane version (1.26.2) do not conform to kubeadm version skew policy as they are 2 or more minor versions apart ("KubeadmVersionSkew" preflight check failed)`, passingFacts(withMachineVersion("v1.24.5"))},
		{`version "latest" of KubeadmControlPlane ns1/cp1 cannot be read ("KubernetesVersionSkew" preflight check failed)`, passingFacts(withControlPlaneVersion("latest"))},
		{`version "?" of MachineSet cannot be read ("KubernetesVersionSkew" preflight check failed)`, passingFacts(withMachineVersion("?"))},
	} {
		assert.Equal(t, row.want, preflight.Decide(row.o)[0].Why)
	}
}
