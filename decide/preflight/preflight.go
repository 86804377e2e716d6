// Package preflight answers whether a set may make machines now, seen from the control plane that they would join: is it
// stable, and do the versions go together? The set's decision calls it with what it read. It reads nothing itself and
// blocks nothing: it names the checks that fail, each with its reason.
package preflight

import (
	"slices"
	"strings"
)

// Names of the checks, as Cluster API has them. All stands for every check, where checks are turned on and where they are
// skipped.
const (
	All                   = "All"
	ControlPlaneIsStable  = "ControlPlaneIsStable"
	KubernetesVersionSkew = "KubernetesVersionSkew"
	KubeadmVersionSkew    = "KubeadmVersionSkew"
)

// ControlPlane is what is known of the control plane that the machines of a set join.
type ControlPlane struct {
	Kind         string // for sentences
	Name         string // for sentences; with its namespace, where it has one
	Version      string // that it shall have, as v1.31.2; empty: unknown, and no version is compared
	Replicas     int    // that it shall have; 0 where it does not count replicas
	Available    int    // of these, the ones that are available
	Unread       bool   // nobody has read it yet: no check passes
	Provisioning bool   // it has never reported a version
	Upgrading    bool   // it has reported an older version than it shall have
}

// Machines is what is known of the machines that the set would make.
type Machines struct {
	Version string // of Kubernetes, as v1.31.2; empty: unknown, and no version is compared
	Kubeadm bool   // they join by kubeadm
}

// Settings say which checks count.
type Settings struct {
	Checks []string // those that run, or All; empty turns them off
	// Strict adds what Cluster API's code demands beyond its document: the control plane is neither being provisioned nor
	// upgraded, and kubeadm has the minor version of the control plane. False demands what the document says.
	Strict bool
	Skip   string // names that the set skips, separated by commas; All skips every check; unknown names skip nothing
}

// Observed is what the set's decision read, at one moment.
type Observed struct {
	ControlPlane *ControlPlane // nil: none is configured, and every check passes
	Machines     Machines
	Settings     Settings
}

// Failure is one check that does not pass.
type Failure struct {
	Check   string // its name
	Why     string // one sentence, with the check's name in it
	Invalid bool   // nothing was compared: a version cannot be read
}

// Decide returns the checks that fail, in the order in which the constants stand; none when machines may be made. The
// same input gives the same output.
func Decide(o Observed) []Failure {
	if o.ControlPlane == nil {
		return nil
	}
	var failures []Failure
	for _, c := range []struct {
		name string
		run  func(Observed) (why string, invalid bool)
	}{
		{ControlPlaneIsStable, stable},
		{KubernetesVersionSkew, kubernetesSkew},
		{KubeadmVersionSkew, kubeadmSkew},
	} {
		if !o.Settings.runs(c.name) {
			continue
		}
		if why, invalid := c.run(o); why != "" {
			failures = append(failures, Failure{Check: c.name, Why: why + ` ("` + c.name + `" preflight check failed)`, Invalid: invalid})
		}
	}
	return failures
}

// runs reports whether a check is turned on and not skipped.
func (s Settings) runs(check string) bool {
	skipped := strings.Split(s.Skip, ",")
	for i := range skipped {
		skipped[i] = strings.TrimSpace(skipped[i])
	}
	has := func(list []string) bool { return slices.Contains(list, All) || slices.Contains(list, check) }
	return has(s.Checks) && !has(skipped)
}
