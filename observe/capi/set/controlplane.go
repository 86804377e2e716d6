// Package set turns a MachineSet of cluster.x-k8s.io/v1beta2, and what it refers to, into facts for decide, and plans
// into its status.
package set

import (
	"encoding/base64"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/preflight"
)

// paths is where the contracts put the facts about a control plane. Of several paths the first that exists counts.
var paths = struct{ available [][]string }{
	available: [][]string{
		{"status", "availableReplicas"}, // v1beta2
		{"status", "readyReplicas"},     // v1beta1
	},
}

// controlPlane returns the facts about a control plane. A field that is missing, or of another type, is not known.
func controlPlane(o *unstructured.Unstructured, cluster *clusterv1.Cluster) *preflight.ControlPlane {
	f := &preflight.ControlPlane{
		Kind:    o.GetKind(),
		Name:    o.GetNamespace() + "/" + o.GetName(),
		Version: text(o, "spec", "version"),
	}
	reached := reachedVersions(o)
	f.Provisioning = len(reached) == 0
	for _, v := range reached {
		f.Upgrading = f.Upgrading || f.Version != "" && v != f.Version
	}
	if wanted, counts := number(o, "spec", "replicas"); counts {
		f.Replicas = wanted
		for _, path := range paths.available {
			if n, found := number(o, path...); found {
				f.Available = n
				break
			}
		}
	}
	if cluster != nil && cluster.Spec.Topology.IsDefined() {
		f.Topology = true
		step := cluster.Annotations[clusterv1.ClusterTopologyUpgradeStepAnnotation]
		if wanted := cluster.Spec.Topology.Version; wanted != f.Version && step != f.Version {
			f.Pending = wanted
			if step != "" {
				f.Pending = step
			}
		}
	}
	return f
}

// reachedVersions returns the versions that a control plane reports: those in status.versions, else status.version.
func reachedVersions(o *unstructured.Unstructured) (versions []string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "versions")
	for _, item := range list {
		entry, _ := item.(map[string]any)
		if v, _ := entry["version"].(string); v != "" {
			versions = append(versions, v)
		}
	}
	if v := text(o, "status", "version"); len(versions) == 0 && v != "" {
		versions = append(versions, v)
	}
	return versions
}

func text(o *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, path...)
	return value
}

func number(o *unstructured.Unstructured, path ...string) (n int, found bool) {
	value, found, err := unstructured.NestedInt64(o.Object, path...)
	return int(value), found && err == nil
}

// longestLabel is the longest value of a label. Source: Kubernetes.
const longestLabel = 63

// labelValue returns a name as the value of a label. Source of the form for a name that is too long: Cluster API, whose
// controllers look for the same value.
func labelValue(name string) string {
	if len(name) <= longestLabel {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return "hash_" + base64.RawURLEncoding.EncodeToString(h.Sum(nil)) + "_z"
}
