package process

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"millwright/decide/preflight"
	"millwright/observe"
)

// PreflightFlags say what sets look at before they make machines. Worker and bridge must be given the same ones.
type PreflightFlags struct {
	ControlPlane string
	Checks       string
	Strict       bool
}

// Register adds the flags to a set.
func (f *PreflightFlags) Register(set *flag.FlagSet) {
	set.StringVar(&f.ControlPlane, "control-plane", "", "object that tells of the control plane which machines join, as group/version/resource/namespace/name; it keeps the contract of Cluster API's control planes. Empty: sets look at none before they make machines")
	set.StringVar(&f.Checks, "preflight-checks", preflight.All, "checks of the control plane that run, separated by commas")
	set.BoolVar(&f.Strict, "strict-preflight-checks", false, "make no machines while the control plane is provisioned or upgraded, and let kubeadm join its own minor version only")
}

// Watch makes the control plane known to a cluster's caches; without one it does nothing. Call it before the caches start.
func (f *PreflightFlags) Watch(cluster *observe.Cluster, config *rest.Config) error {
	if f.ControlPlane == "" {
		return nil
	}
	ref, err := observe.ParseControlPlane(f.ControlPlane)
	if err != nil {
		return fmt.Errorf("--control-plane: %w", err)
	}
	known := []string{preflight.All, preflight.ControlPlaneIsStable, preflight.KubernetesVersionSkew, preflight.KubeadmVersionSkew}
	var checks []string
	for name := range strings.SplitSeq(f.Checks, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case !slices.Contains(known, name):
			return fmt.Errorf("--preflight-checks: %q is none of %s", name, strings.Join(known, ", "))
		default:
			checks = append(checks, name)
		}
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	cluster.WatchControlPlane(observe.Preflight{Client: client, ControlPlane: ref, Checks: checks, Strict: f.Strict})
	return nil
}
