// Package preflight decides whether a set may create machines now, from the state and the version of the set's control
// plane. The package does no I/O, and only returns the failed checks with their reasons.
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

// Names of the checks, from Cluster API. All means every check, both in Settings.Checks and in Settings.Skip.
const (
	CheckAll                   = "All"
	CheckControlPlaneIsStable  = "ControlPlaneIsStable"
	CheckKubernetesVersionSkew = "KubernetesVersionSkew"
	CheckKubeadmVersionSkew    = "KubeadmVersionSkew"
	// CheckControlPlaneVersionSkew runs only with Settings.Strict, and only if a topology sets the version of the control
	// plane.
	CheckControlPlaneVersionSkew = "ControlPlaneVersionSkew"
)

// ControlPlane holds the facts about the control plane that the machines of a set join.
type ControlPlane struct {
	Kind         string // kind of the control plane object, for messages
	Name         string // name in messages, with the namespace if the control plane has one
	Version      string // wanted version, such as v1.31.2; empty: not known, and versions are not compared
	Replicas     int    // wanted replicas; 0: this kind of control plane has no replicas
	Available    int    // number of available replicas of the control plane
	Unread       bool   // the control plane was not read yet, so no check passes
	Absent       bool   // the control plane that the Cluster names does not exist, so no check passes
	Provisioning bool   // the control plane has not reported a version yet
	Upgrading    bool   // the reported version is older than the wanted version
	Topology     bool   // the topology of the Cluster sets the version of the control plane
	Pending      string // version that the topology will set next; empty: none
}

// MachineFacts holds the facts about the machines that the set would create.
type MachineFacts struct {
	Version string // Kubernetes version, such as v1.31.2; if it is empty, no versions are compared
	Kubeadm bool   // the machines join by kubeadm
}

// Settings says which checks run.
type Settings struct {
	Checks []string // names of the checks that run, or All; empty: no check runs
	// Strict adds the checks that Cluster API's code makes: the control plane must not be provisioning or upgrading, and
	// kubeadm must have the minor version of the control plane. Sets of Cluster API are always Strict.
	Strict bool
	// RequireReplicas adds a check that Cluster API's code does not make: all replicas of the control plane must be
	// available.
	RequireReplicas bool
	Skip            string // checks that the set skips, separated by commas, or All; unknown names are ignored
}

// Facts holds the facts that the set's activity read at one moment.
type Facts struct {
	ControlPlane *ControlPlane // nil: no control plane is configured, and every check passes
	Machines     MachineFacts
	Settings     Settings
}

// CheckFailure is a failed check.
type CheckFailure struct {
	Check string // name of the check
	Why   string // one sentence that contains the name of the check
}

// Decide returns the failed checks, in the order of the constants. No failure means that the set may create
// machines.
func Decide(o Facts) []CheckFailure {
	if o.ControlPlane == nil {
		return nil
	}
	failures := list.Filter([]CheckFailure{
		{CheckControlPlaneIsStable, stabilityFailure(o)},
		{CheckKubernetesVersionSkew, kubernetesSkewFailure(o)},
		{CheckKubeadmVersionSkew, kubeadmSkewFailure(o)},
		{CheckControlPlaneVersionSkew, controlPlaneSkewFailure(o)},
	}, func(f CheckFailure) bool { return f.Why != "" && o.Settings.isEnabled(f.Check) })
	for i, f := range failures {
		failures[i].Why = fmt.Sprintf("%s (%q preflight check failed)", f.Why, f.Check)
	}
	return failures
}

// isEnabled reports whether a check is enabled and not skipped.
func (s Settings) isEnabled(check string) bool {
	skipped := list.Map(strings.Split(s.Skip, ","), strings.TrimSpace)
	has := func(names []string) bool { return slices.Contains(names, CheckAll) || slices.Contains(names, check) }
	return has(s.Checks) && !has(skipped)
}

// The largest allowed differences in minor versions.
const (
	// maxMachineMinorLag is how many minor versions machines may be older than the control plane. Source of
	// maxMachineMinorLag: Kubernetes' version skew policy.
	maxMachineMinorLag = 3
	// maxKubeadmMinorSkew is how many minor versions kubeadm may be older or newer than the control plane. Source of
	// maxKubeadmMinorSkew: Cluster API's documentation, "less than 2 minor versions".
	maxKubeadmMinorSkew = 1
)

// stabilityFailure checks that the control plane exists and, depending on the settings, that all its replicas are
// available, and that it is not being provisioned or upgraded.
func stabilityFailure(o Facts) string {
	c := o.ControlPlane
	name := c.Kind + " " + c.Name
	return cmp.Or(
		phrase.TextIf(c.Absent, "%s does not exist", name),
		phrase.TextIf(c.Unread, "%s was not read yet", name),
		phrase.TextIf(
			o.Settings.RequireReplicas && c.Available < c.Replicas,
			"%s has %d of %d replicas available",
			name,
			c.Available,
			c.Replicas,
		),
		phrase.TextIf(o.Settings.Strict && c.Pending != "", "%s has a pending version upgrade to %s", name, c.Pending),
		phrase.TextIf(o.Settings.Strict && c.Provisioning, "%s is provisioning", name),
		phrase.TextIf(o.Settings.Strict && c.Upgrading, "%s is upgrading", name),
	)
}

// kubernetesSkewFailure checks that the control plane supports the machines' kubelets.
func kubernetesSkewFailure(o Facts) string {
	return versionSkewFailure(o, "the kubernetes", func(m, c *version) string {
		return cmp.Or(
			phrase.TextIf(m.major != c.major, "their major versions differ"),
			phrase.TextIf(m.minor > c.minor, "MachineSet version is higher than ControlPlane version"),
			// This is a sum, because a difference of unsigned numbers can underflow.
			phrase.TextIf(m.minor+maxMachineMinorLag < c.minor,
				"MachineSet version is more than %d minor versions older than the ControlPlane version", maxMachineMinorLag),
		)
	})
}

// kubeadmSkewFailure checks that kubeadm can join the control plane.
func kubeadmSkewFailure(o Facts) string {
	if !o.Machines.Kubeadm {
		return ""
	}
	return versionSkewFailure(o, "kubeadm", func(m, c *version) string {
		return cmp.Or(
			phrase.TextIf(m.major != c.major || o.Settings.Strict && m.minor != c.minor,
				"kubeadm only supports joining with the same major+minor version as the control plane"),
			phrase.TextIf(m.minor > c.minor+maxKubeadmMinorSkew || m.minor+maxKubeadmMinorSkew < c.minor,
				"they are %d or more minor versions apart", maxKubeadmMinorSkew+1),
		)
	})
}

// controlPlaneSkewFailure checks that the topology has set the control plane's version on the machines.
func controlPlaneSkewFailure(o Facts) string {
	c, m := o.ControlPlane, o.Machines
	return phrase.TextIf(
		o.Settings.Strict && c.Topology && m.Version != "" && c.Version != "" && m.Version != c.Version,
		"MachineSet version (%s) is not yet the same as the ControlPlane version (%s), waiting for version to be propagated to the MachineSet",
		m.Version,
		c.Version,
	)
}

// versionSkewFailure returns why the versions of machines and control plane violate a policy, or why a version cannot
// be parsed. Empty versions are not compared.
func versionSkewFailure(o Facts, policy string, differ func(machines, controlPlane *version) string) string {
	c, readable := parseVersion(o.ControlPlane.Version)
	m, ok := parseVersion(o.Machines.Version)
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
	return phrase.TextIf(
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
	text         string // the version without the leading v
}

// parseVersion parses a version such as v1.31.2. The leading v, patch, pre-release and build are optional: 1.31,
// v1.31.2-beta.0 and v1.31.2+vendor.1 have the same major and minor version. For an empty text v is nil and ok is
// true.
func parseVersion(text string) (v *version, ok bool) {
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
		n, err := strconv.ParseUint(number, 10, 32) // with 32 bits, sums of these numbers do not overflow
		if err != nil {
			return nil, false
		}
		parsed[i] = n
	}
	return &version{major: parsed[0], minor: parsed[1], text: text}, true
}
