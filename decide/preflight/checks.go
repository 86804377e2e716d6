package preflight

import "fmt"

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
	switch {
	case c.Unread:
		return fmt.Sprintf("%s %s was not read yet", c.Kind, c.Name), false
	case c.Available < c.Replicas:
		return fmt.Sprintf("%s %s has %d of %d replicas available", c.Kind, c.Name, c.Available, c.Replicas), false
	case o.Settings.Strict && c.Provisioning:
		return fmt.Sprintf("%s %s is provisioning", c.Kind, c.Name), false
	case o.Settings.Strict && c.Upgrading:
		return fmt.Sprintf("%s %s is upgrading", c.Kind, c.Name), false
	default:
		return "", false
	}
}

// kubernetesSkew checks that the machines' kubelets can speak to the control plane.
func kubernetesSkew(o Observed) (why string, invalid bool) {
	c, m, unread := versions(o)
	switch {
	case unread != "":
		return unread, true
	case c == nil || m == nil:
		return "", false
	case m.major != c.major:
		return conform(m, c, "the kubernetes", "their major versions differ"), false
	case m.minor > c.minor:
		return conform(m, c, "the kubernetes", "MachineSet version is higher than ControlPlane version"), false
	case m.minor+oldestMachines < c.minor: // an addition: a difference would be below zero for young control planes
		return conform(m, c, "the kubernetes", fmt.Sprintf("MachineSet version is more than %d minor versions older than the ControlPlane version", oldestMachines)), false
	default:
		return "", false
	}
}

// kubeadmSkew checks that kubeadm can join the control plane.
func kubeadmSkew(o Observed) (why string, invalid bool) {
	if !o.Machines.Kubeadm {
		return "", false
	}
	c, m, unread := versions(o)
	switch {
	case unread != "":
		return unread, true
	case c == nil || m == nil:
		return "", false
	case m.major != c.major, o.Settings.Strict && m.minor != c.minor:
		return conform(m, c, "kubeadm", "kubeadm only supports joining with the same major+minor version as the control plane"), false
	case m.minor > c.minor+widestKubeadm, m.minor+widestKubeadm < c.minor:
		return conform(m, c, "kubeadm", fmt.Sprintf("they are %d or more minor versions apart", widestKubeadm+1)), false
	default:
		return "", false
	}
}

func conform(m, c *version, policy, why string) string {
	return fmt.Sprintf("MachineSet version (%s) and ControlPlane version (%s) do not conform to %s version skew policy as %s", m.text, c.text, policy, why)
}

// versions reads both versions. One that is not given is nil; unread says which one makes no sense.
func versions(o Observed) (controlPlane, machines *version, unread string) {
	controlPlane, ok := parse(o.ControlPlane.Version)
	if !ok {
		return nil, nil, fmt.Sprintf("version %q of %s %s cannot be read", o.ControlPlane.Version, o.ControlPlane.Kind, o.ControlPlane.Name)
	}
	machines, ok = parse(o.Machines.Version)
	if !ok {
		return nil, nil, fmt.Sprintf("version %q of MachineSet cannot be read", o.Machines.Version)
	}
	return controlPlane, machines, ""
}
