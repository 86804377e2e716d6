// Package preflight decides whether a set may create machines now, by the state and the version of the control plane
// that they join. It does no I/O and blocks nothing: it returns the failed checks, each with its reason.
package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Names of the checks, from Cluster API. All means every check, in Settings.Checks and in Settings.Skip.
const (
	All                   = "All"
	ControlPlaneIsStable  = "ControlPlaneIsStable"
	KubernetesVersionSkew = "KubernetesVersionSkew"
	KubeadmVersionSkew    = "KubeadmVersionSkew"
	// ControlPlaneVersionSkew runs with Settings.Strict for a control plane whose version a topology sets.
	ControlPlaneVersionSkew = "ControlPlaneVersionSkew"
)

// ControlPlane describes the control plane that the machines of a set join.
type ControlPlane struct {
	Kind         string // for messages
	Name         string // for messages; with its namespace, if it has one
	Version      string // wanted version, such as v1.31.2; empty: not known, and no version is compared
	Replicas     int    // wanted replicas; 0: this kind of control plane does not count replicas
	Available    int    // available replicas
	Unread       bool   // it was not read yet: no check passes
	Absent       bool   // it does not exist although the Cluster names it: no check passes
	Provisioning bool   // it has not reported a version yet
	Upgrading    bool   // it reports an older version than the wanted one
	Topology     bool   // the topology of its Cluster sets its version
	Pending      string // version that the topology will set next; empty: none
}

// Machines describes the machines that the set would create.
type Machines struct {
	Version string // Kubernetes version, such as v1.31.2; empty: not known, and no version is compared
	Kubeadm bool   // they join by kubeadm
}

// Settings say which checks run.
type Settings struct {
	Checks []string // the checks that run, or All; empty: none
	// Strict adds what Cluster API's code demands beyond its document: the control plane is not being provisioned or
	// upgraded, and kubeadm has the minor version of the control plane.
	Strict bool
	Skip   string // checks that the set skips, separated by commas, or All; unknown names are ignored
}

// Observed is what the set's activity read at one moment.
type Observed struct {
	ControlPlane *ControlPlane // nil: none is configured, and every check passes
	Machines     Machines
	Settings     Settings
}

// Failure is a failed check.
type Failure struct {
	Check string // its name
	Why   string // one sentence that contains the name of the check
}

// Decide returns the failed checks, in the order of the constants. None: the set may create machines.
func Decide(o Observed) []Failure {
	if o.ControlPlane == nil {
		return nil
	}
	failures := list.Where([]Failure{
		{ControlPlaneIsStable, stable(o)},
		{KubernetesVersionSkew, kubernetesSkew(o)},
		{KubeadmVersionSkew, kubeadmSkew(o)},
		{ControlPlaneVersionSkew, controlPlaneSkew(o)},
	}, func(f Failure) bool { return f.Why != "" && o.Settings.runs(f.Check) })
	for i, f := range failures {
		failures[i].Why = fmt.Sprintf("%s (%q preflight check failed)", f.Why, f.Check)
	}
	return failures
}

// runs reports whether a check is enabled and not skipped.
func (s Settings) runs(check string) bool {
	skipped := list.Map(strings.Split(s.Skip, ","), strings.TrimSpace)
	has := func(names []string) bool { return slices.Contains(names, All) || slices.Contains(names, check) }
	return has(s.Checks) && !has(skipped)
}

// Largest differences in minor versions.
const (
	// oldestMachines is how many minor versions machines may be behind the control plane. Source: Kubernetes' version skew
	// policy.
	oldestMachines = 3
	// widestKubeadm is how many minor versions the machines' kubeadm may differ from the control plane, in either
	// direction. Source: Cluster API's document, "less than 2 minor versions".
	widestKubeadm = 1
)

// stable checks that all replicas of the control plane are available.
func stable(o Observed) string {
	c := o.ControlPlane
	name := c.Kind + " " + c.Name
	return cmp.Or(
		phrase.If(c.Absent, "%s does not exist", name),
		phrase.If(c.Unread, "%s was not read yet", name),
		phrase.If(c.Available < c.Replicas, "%s has %d of %d replicas available", name, c.Available, c.Replicas),
		phrase.If(o.Settings.Strict && c.Pending != "", "%s has a pending version upgrade to %s", name, c.Pending),
		phrase.If(o.Settings.Strict && c.Provisioning, "%s is provisioning", name),
		phrase.If(o.Settings.Strict && c.Upgrading, "%s is upgrading", name),
	)
}

// kubernetesSkew checks that the control plane supports the machines' kubelets.
func kubernetesSkew(o Observed) string {
	return compare(o, "the kubernetes", func(m, c *version) string {
		return cmp.Or(
			phrase.If(m.major != c.major, "their major versions differ"),
			phrase.If(m.minor > c.minor, "MachineSet version is higher than ControlPlane version"),
			// A sum, because a difference of unsigned numbers can underflow.
			phrase.If(m.minor+oldestMachines < c.minor,
				"MachineSet version is more than %d minor versions older than the ControlPlane version", oldestMachines),
		)
	})
}

// kubeadmSkew checks that kubeadm can join the control plane.
func kubeadmSkew(o Observed) string {
	if !o.Machines.Kubeadm {
		return ""
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

// controlPlaneSkew checks that the topology has given the machines the version of the control plane.
func controlPlaneSkew(o Observed) string {
	c, m := o.ControlPlane, o.Machines
	return phrase.If(
		o.Settings.Strict && c.Topology && m.Version != "" && c.Version != "" && m.Version != c.Version,
		"MachineSet version (%s) is not yet the same as the ControlPlane version (%s), waiting for version to be propagated to the MachineSet",
		m.Version,
		c.Version,
	)
}

// compare says why the versions of machines and control plane violate a policy, or cannot be parsed. A version that is
// not given is not compared.
func compare(o Observed, policy string, differ func(machines, controlPlane *version) string) string {
	c, readable := parse(o.ControlPlane.Version)
	m, ok := parse(o.Machines.Version)
	switch {
	case !readable:
		return fmt.Sprintf(
			"version %q of %s %s cannot be read",
			o.ControlPlane.Version,
			o.ControlPlane.Kind,
			o.ControlPlane.Name,
		)
	case !ok:
		return fmt.Sprintf("version %q of MachineSet cannot be read", o.Machines.Version)
	case c == nil || m == nil:
		return ""
	}
	why := differ(m, c)
	return phrase.If(
		why != "",
		"MachineSet version (%s) and ControlPlane version (%s) do not conform to %s version skew policy as %s",
		m.text,
		c.text,
		policy,
		why,
	)
}

// version is a parsed Kubernetes version.
type version struct {
	major, minor uint64
	text         string // without the leading v
}

// parse reads a version such as v1.31.2; v, patch, pre-release and build are optional: 1.31, v1.31.2-beta.0 and
// v1.31.2+vendor.1 have the same major and minor. For an empty text v is nil and ok is true.
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
