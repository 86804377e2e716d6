package process

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"millwright/decide/preflight"
	"millwright/observe/cache"
)

// PreflightFlags choose the checks of the control plane that MachineSets make before they create machines. Worker and
// bridge need the same PreflightFlags.
type PreflightFlags struct {
	ControlPlaneReference string
	CheckNames            string
	IsStrict              bool
	RequiresReplicas      bool
}

// Register adds the flags to a set.
func (f *PreflightFlags) Register(set *pflag.FlagSet) {
	set.StringVar(
		&f.ControlPlaneReference,
		"control-plane",
		"",
		"control plane object that MachineSets check before they create machines, as group/version/resource/namespace/name; it must follow the contract of Cluster API control planes; empty means no check; set the same value on worker and bridge",
	)
	set.StringVar(
		&f.CheckNames,
		"preflight-checks",
		preflight.CheckAll,
		"control plane checks to run, separated by commas",
	)
	set.BoolVar(
		&f.IsStrict,
		"strict-preflight-checks",
		false,
		"create no machines while the control plane is being provisioned or upgraded, and accept only machines of the control plane's minor version if kubeadm joins them; MachineSets of Cluster API always do",
	)
	set.BoolVar(
		&f.RequiresReplicas,
		"require-control-plane-replicas",
		false,
		"MachineSets of Cluster API create no machines while a replica of the control plane is not available; other MachineSets never create machines then",
	)
}

// ApplyToCluster sets the checks in a cluster. ApplyToCluster also adds the configured control plane, if any, to the
// caches. Call ApplyToCluster before the caches start.
func (f *PreflightFlags) ApplyToCluster(cluster *cache.Cluster, restConfig *rest.Config) error {
	known := []string{
		preflight.CheckAll,
		preflight.CheckControlPlaneIsStable,
		preflight.CheckKubernetesVersionSkew,
		preflight.CheckKubeadmVersionSkew,
		preflight.CheckControlPlaneVersionSkew,
	}
	var checks []string
	for name := range strings.SplitSeq(f.CheckNames, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case !slices.Contains(known, name):
			return fmt.Errorf("--preflight-checks: %q is none of %s", name, strings.Join(known, ", "))
		default:
			checks = append(checks, name)
		}
	}
	config := cache.PreflightConfig{Checks: checks, IsStrict: f.IsStrict, RequiresReplicas: f.RequiresReplicas}
	cluster.Preflight = config
	if f.ControlPlaneReference == "" {
		return nil
	}
	ref, err := cache.ParseControlPlane(f.ControlPlaneReference)
	if err != nil {
		return fmt.Errorf("--control-plane: %w", err)
	}
	client, err := dynamic.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	config.Client, config.ControlPlane = client, ref
	cluster.WatchControlPlane(config)
	return nil
}
