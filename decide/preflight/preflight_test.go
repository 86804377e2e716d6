package preflight_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/preflight"
)

// stable is a control plane of three with everything in order, and machines of its version that join by kubeadm.
func stable(changes ...func(*preflight.Observed)) preflight.Observed {
	o := preflight.Observed{
		ControlPlane: &preflight.ControlPlane{
			Kind:      "KubeadmControlPlane",
			Name:      "ns1/cp1",
			Version:   "v1.26.2",
			Replicas:  3,
			Available: 3,
		},
		Machines: preflight.Machines{Version: "v1.26.2", Kubeadm: true},
		Settings: preflight.Settings{Checks: []string{preflight.All}},
	}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func strict(o *preflight.Observed) { o.Settings.Strict = true }
func skip(names string) func(*preflight.Observed) {
	return func(o *preflight.Observed) { o.Settings.Skip = names }
}

func machines(v string) func(*preflight.Observed) {
	return func(o *preflight.Observed) { o.Machines.Version = v }
}

func control(v string) func(*preflight.Observed) {
	return func(o *preflight.Observed) { o.ControlPlane.Version = v }
}

func available(n int) func(*preflight.Observed) {
	return func(o *preflight.Observed) { o.ControlPlane.Available = n }
}

func checks(on ...string) func(*preflight.Observed) {
	return func(o *preflight.Observed) { o.Settings.Checks = on }
}

func provisioning(o *preflight.Observed) { o.ControlPlane.Provisioning = true }
func upgrading(o *preflight.Observed)    { o.ControlPlane.Upgrading = true }
func noKubeadm(o *preflight.Observed)    { o.Machines.Kubeadm = false }
func topology(o *preflight.Observed)     { o.ControlPlane.Topology = true }

func pending(v string) func(*preflight.Observed) {
	return func(o *preflight.Observed) { o.ControlPlane.Topology, o.ControlPlane.Pending = true, v }
}

func failed(failures []preflight.Failure) string {
	var names []string
	for _, f := range failures {
		if strings.Contains(f.Why, "cannot be read") {
			f.Check = "invalid " + f.Check
		}
		names = append(names, f.Check)
	}
	return strings.Join(names, ", ")
}

func TestChecks(t *testing.T) {
	const (
		cp, kube, adm = preflight.ControlPlaneIsStable, preflight.KubernetesVersionSkew, preflight.KubeadmVersionSkew
		same          = preflight.ControlPlaneVersionSkew
		invalid       = "invalid " + kube + ", invalid " + adm
	)
	for _, row := range []struct {
		name string
		o    preflight.Observed
		want string
	}{
		{"no control plane is configured", preflight.Observed{Settings: stable().Settings, Machines: stable(machines("v9.9.9")).Machines}, ""},
		{"the control plane has no version", stable(control(""), machines("v1.99.0")), ""},
		{"its version makes no sense", stable(control("latest")), invalid},
		{"nor does one with nothing but a major", stable(control("v1")), invalid},
		{"whether or not the set has one", stable(control("latest"), machines("")), invalid},
		{"the set skips all", stable(available(0), control("latest"), skip("All")), ""},
		{"provisioning", stable(strict, provisioning), cp},
		{"provisioning is no failure by the document, when the replicas are there", stable(provisioning), ""},
		{"upgrading", stable(strict, upgrading), cp},
		{"upgrading, one replica short: by the document", stable(upgrading, available(2)), cp},
		{"the topology wants another version", stable(strict, pending("v1.27.0")), cp},
		{"another version of the topology is no failure by the document", stable(pending("v1.27.0")), ""},
		{"the topology is on its way to a version between", stable(strict, pending("v1.27.0"), skip(same)), cp},
		{"upgrading, and the check is skipped", stable(strict, upgrading, skip(cp)), ""},
		{"stable", stable(), ""},
		{"stable, strictly", stable(strict), ""},
		{"one that counts no replicas", stable(strict, func(o *preflight.Observed) { o.ControlPlane.Replicas, o.ControlPlane.Available = 0, 0 }), ""},
		{"more than it shall have, in the middle of an update", stable(available(4)), ""},
		{"the version that the topology wants now is reached", stable(strict, topology), ""},
		{"the set has no version", stable(machines("")), ""},
		{"the set's version makes no sense", stable(machines("v1.26.2.1")), invalid},
		{"nor has it a number", stable(machines("v1.x.2"), noKubeadm), "invalid " + kube},
		{"a minor version ahead", stable(machines("v1.27.0"), noKubeadm), kube},
		{"four minor versions behind", stable(machines("v1.22.0"), noKubeadm), kube},
		{"another major version", stable(machines("v2.26.2"), noKubeadm), kube},
		{"four behind, and the check is skipped", stable(machines("v1.22.0"), skip(kube+","+adm)), ""},
		{"three behind", stable(machines("v1.23.17"), noKubeadm), ""},
		{"a young control plane has no version below zero", stable(control("v1.2.0"), machines("v1.0.0"), noKubeadm), ""},
		{"the patch does not count", stable(machines("v1.26.9"), strict), ""},
		{"nor do pre-release and build", stable(control("v1.26.2+vendor-1.4"), machines("1.26.2-rc.1"), strict), ""},
		{"kubeadm two minor versions behind", stable(machines("v1.24.0")), adm},
		{"kubeadm one behind is near enough by the document", stable(machines("v1.25.5")), ""},
		{"kubeadm one behind, strictly", stable(machines("v1.25.5"), strict), adm},
		{"kubeadm two ahead fails both", stable(machines("v1.28.0")), kube + ", " + adm},
		{"they do not join by kubeadm", stable(machines("v1.24.0"), strict, noKubeadm), ""},
		{"kubeadm differs, and the check is skipped", stable(machines("v1.24.0"), strict, skip(" "+adm+" ,Other")), ""},
		{"the same minor version", stable(machines("v1.26.0"), strict), ""},
		{"another patch version, and the check is skipped", stable(strict, topology, machines("v1.26.1"), skip(same)), ""},
		{"no topology", stable(strict, machines("v1.26.1")), ""},
		{"a topology and another patch version", stable(strict, topology, machines("v1.26.1")), same},
		{"a topology and another build", stable(strict, topology, machines("v1.26.2+vendor.1")), same},
		{"another patch version is no failure by the document", stable(topology, machines("v1.26.1")), ""},
		{"a topology, and the set has no version", stable(strict, topology, machines("")), ""},
		{"a topology, and the control plane has no version", stable(strict, topology, control("")), ""},
		{"a topology and the same version", stable(strict, topology), ""},
		{"no check is turned on", stable(available(0), control("latest"), checks()), ""},
		{"all that fail are told", stable(available(1), machines("v1.20.0")), cp + ", " + kube + ", " + adm},
	} {
		t.Run(row.name, func(t *testing.T) {
			failures := preflight.Decide(row.o)
			assert.Equal(t, row.want, failed(failures))
			assert.Equal(t, failures, preflight.Decide(row.o), "same input, another answer")
			for _, f := range failures {
				assert.Contains(t, f.Why, `("`+f.Check+`" preflight check failed)`)
			}
		})
	}
}

func TestWhichPreflightChecksRun(t *testing.T) {
	all := preflight.ControlPlaneIsStable + ", " + preflight.KubernetesVersionSkew + ", " + preflight.KubeadmVersionSkew
	broken := func(changes ...func(*preflight.Observed)) preflight.Observed {
		return stable(append([]func(*preflight.Observed){available(0), machines("v1.20.0")}, changes...)...)
	}
	for _, row := range []struct {
		name, want string
		o          preflight.Observed
	}{
		{"all", all, broken()},
		{"one", preflight.KubernetesVersionSkew, broken(checks(preflight.KubernetesVersionSkew))},
		{"all, and all skipped", "", broken(skip("All"))},
		{"one, and all skipped", "", broken(checks(preflight.KubernetesVersionSkew), skip("KubeadmVersionSkew, All"))},
		{"all, and one skipped", preflight.ControlPlaneIsStable + ", " + preflight.KubernetesVersionSkew, broken(skip("KubeadmVersionSkew"))},
		{"one, and that one skipped", "", broken(checks(preflight.ControlPlaneIsStable), skip("ControlPlaneIsStable"))},
		{"a name that nobody knows skips nothing", all, broken(skip("all,,Something"))},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, failed(preflight.Decide(row.o))) })
	}
}

func TestSentences(t *testing.T) {
	for _, row := range []struct {
		want string
		o    preflight.Observed
	}{
		{`KubeadmControlPlane ns1/cp1 has 2 of 3 replicas available ("ControlPlaneIsStable" preflight check failed)`, stable(available(2))},
		{`KubeadmControlPlane ns1/cp1 has a pending version upgrade to v1.27.3 ("ControlPlaneIsStable" preflight check failed)`, stable(strict, pending("v1.27.3"))},
		{`MachineSet version (v1.26.1) is not yet the same as the ControlPlane version (v1.26.2), waiting for version to be propagated to the MachineSet ("ControlPlaneVersionSkew" preflight check failed)`, stable(strict, topology, machines("v1.26.1"))},
		{`KubeadmControlPlane ns1/cp1 is provisioning ("ControlPlaneIsStable" preflight check failed)`, stable(strict, provisioning)},
		{`KubeadmControlPlane ns1/cp1 is upgrading ("ControlPlaneIsStable" preflight check failed)`, stable(strict, upgrading)},
		{`MachineSet version (1.27.0) and ControlPlane version (1.26.2) do not conform to the kubernetes version skew policy as MachineSet version is higher than ControlPlane version ("KubernetesVersionSkew" preflight check failed)`, stable(machines("v1.27.0"))},
		{`MachineSet version (1.22.1) and ControlPlane version (1.26.2) do not conform to the kubernetes version skew policy as MachineSet version is more than 3 minor versions older than the ControlPlane version ("KubernetesVersionSkew" preflight check failed)`, stable(machines("v1.22.1"), noKubeadm)},
		{`MachineSet version (1.25.5) and ControlPlane version (1.26.2) do not conform to kubeadm version skew policy as kubeadm only supports joining with the same major+minor version as the control plane ("KubeadmVersionSkew" preflight check failed)`, stable(machines("v1.25.5"), strict)},
		{`MachineSet version (1.24.5) and ControlPlane version (1.26.2) do not conform to kubeadm version skew policy as they are 2 or more minor versions apart ("KubeadmVersionSkew" preflight check failed)`, stable(machines("v1.24.5"))},
		{`version "latest" of KubeadmControlPlane ns1/cp1 cannot be read ("KubernetesVersionSkew" preflight check failed)`, stable(control("latest"))},
		{`version "?" of MachineSet cannot be read ("KubernetesVersionSkew" preflight check failed)`, stable(machines("?"))},
	} {
		assert.Equal(t, row.want, preflight.Decide(row.o)[0].Why)
	}
}
