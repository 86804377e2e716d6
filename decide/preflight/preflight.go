// Package preflight answers whether a set may make machines now, seen from the control plane that they would join: is it
// stable, and do the versions go together? The set's decision calls it with what it read. It reads nothing itself and
// blocks nothing: it names the checks that fail, each with its reason.
package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millwright/decide/phrase"
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
		if why, invalid := c.run(o); why != "" && o.Settings.runs(c.name) {
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

// Distances in minor versions.
const (
	// oldestMachines is how far machines may be behind the control plane. Source: Kubernetes' version skew policy.
	oldestMachines = 3
	// widestKubeadm is how far the machines' kubeadm may be from the control plane's version, either way. Source: Cluster
	// API's document, "less than 2 minor versions".
	widestKubeadm = 1
)

// stable checks that the control plane is all there.
func stable(o Observed) (why string, invalid bool) {
	c := o.ControlPlane
	name := c.Kind + " " + c.Name
	return cmp.Or(
		phrase.If(c.Unread, "%s was not read yet", name),
		phrase.If(c.Available < c.Replicas, "%s has %d of %d replicas available", name, c.Available, c.Replicas),
		phrase.If(o.Settings.Strict && c.Provisioning, "%s is provisioning", name),
		phrase.If(o.Settings.Strict && c.Upgrading, "%s is upgrading", name),
	), false
}

// kubernetesSkew checks that the machines' kubelets can speak to the control plane.
func kubernetesSkew(o Observed) (why string, invalid bool) {
	return compare(o, "the kubernetes", func(m, c *version) string {
		return cmp.Or(
			phrase.If(m.major != c.major, "their major versions differ"),
			phrase.If(m.minor > c.minor, "MachineSet version is higher than ControlPlane version"),
			// An addition: a difference would be below zero for young control planes.
			phrase.If(m.minor+oldestMachines < c.minor,
				"MachineSet version is more than %d minor versions older than the ControlPlane version", oldestMachines),
		)
	})
}

// kubeadmSkew checks that kubeadm can join the control plane.
func kubeadmSkew(o Observed) (why string, invalid bool) {
	if !o.Machines.Kubeadm {
		return "", false
	}
	return compare(o, "kubeadm", func(m, c *version) string {
		return cmp.Or(
			phrase.If(m.major != c.major || o.Settings.Strict && m.minor != c.minor,
				"kubeadm only supports joining with the same major+minor version as the control plane"),
			phrase.If(m.minor > c.minor+widestKubeadm || m.minor+widestKubeadm < c.minor,
				"they are %d or more minor versions apart", widestKubeadm+1),
		)
	})
}

// compare reads the versions of machines and control plane, and says why they do not conform to a policy. One that is not given is
// not compared; it is invalid when one makes no sense.
func compare(o Observed, policy string, differ func(machines, controlPlane *version) string) (why string, invalid bool) {
	c, ok := parse(o.ControlPlane.Version)
	if !ok {
		return fmt.Sprintf("version %q of %s %s cannot be read", o.ControlPlane.Version, o.ControlPlane.Kind, o.ControlPlane.Name), true
	}
	m, ok := parse(o.Machines.Version)
	if !ok {
		return fmt.Sprintf("version %q of MachineSet cannot be read", o.Machines.Version), true
	}
	if c == nil || m == nil {
		return "", false
	}
	why = differ(m, c)
	return phrase.If(why != "", "MachineSet version (%s) and ControlPlane version (%s) do not conform to %s version skew policy as %s",
		m.text, c.text, policy, why), false
}

// version is what counts of a version of Kubernetes.
type version struct {
	major, minor uint64
	text         string // without the leading v
}

// parse reads v1.31.2, with or without v, patch, pre-release and build: 1.31, v1.31.2-beta.0 and v1.31.2+vendor.1 have
// the same major and minor. Nothing is read from an empty text, and that is all right.
func parse(text string) (v *version, ok bool) {
	if text == "" {
		return nil, true
	}
	text = strings.TrimPrefix(text, "v")
	core, _, _ := strings.Cut(text, "+")
	core, _, _ = strings.Cut(core, "-")
	numbers := strings.Split(core, ".")
	if len(numbers) < 2 || len(numbers) > 3 {
		return nil, false
	}
	var parsed [3]uint64
	for i, number := range numbers {
		n, err := strconv.ParseUint(number, 10, 32) // 32: sums of these do not overflow
		if err != nil {
			return nil, false
		}
		parsed[i] = n
	}
	return &version{major: parsed[0], minor: parsed[1], text: text}, true
}
