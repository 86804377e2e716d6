// Package set derives facts for decide from a MachineSet of cluster.x-k8s.io/v1beta2 and the objects to which it
// refers. Package set also writes plans into the set's status.
package set

import (
	"encoding/base64"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/preflight"
	observecache "millwright/observe/cache"
)

// controlPlanePaths contains the field paths of facts about a control plane, from the contracts of Cluster API. The
// first path that exists is used.
var controlPlanePaths = struct{ available [][]string }{
	available: [][]string{
		{"status", "availableReplicas"}, // path in contract v1beta2
		{"status", "readyReplicas"},     // path in contract v1beta1
	},
}

// controlPlaneFacts returns the facts about a control plane. A field that is missing or has another type is unknown.
func controlPlaneFacts(o *unstructured.Unstructured, cluster *clusterv1.Cluster) *preflight.ControlPlane {
	f := &preflight.ControlPlane{
		Kind:    o.GetKind(),
		Name:    o.GetNamespace() + "/" + o.GetName(),
		Version: stringField(o, "spec", "version"),
	}
	reached := reportedVersions(o)
	f.Provisioning = len(reached) == 0
	for _, v := range reached {
		f.Upgrading = f.Upgrading || f.Version != "" && observecache.CompareVersions(v, f.Version) < 0
	}
	if wanted, counts := intField(o, "spec", "replicas"); counts {
		f.Replicas = wanted
		for _, path := range controlPlanePaths.available {
			if n, found := intField(o, path...); found {
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

// reportedVersions returns the versions that a control plane reports: the versions in status.versions, otherwise
// status.version.
func reportedVersions(o *unstructured.Unstructured) (versions []string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "versions")
	for _, item := range list {
		entry, _ := item.(map[string]any)
		if v, _ := entry["version"].(string); v != "" {
			versions = append(versions, v)
		}
	}
	if v := stringField(o, "status", "version"); len(versions) == 0 && v != "" {
		versions = append(versions, v)
	}
	return versions
}

func stringField(o *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, path...)
	return value
}

func intField(o *unstructured.Unstructured, path ...string) (n int, found bool) {
	value, found, err := unstructured.NestedInt64(o.Object, path...)
	return int(value), found && err == nil
}

// maxLabelLength is the maximum length of a label value. Source: Kubernetes.
const maxLabelLength = 63

// labelValue returns a name in the form of a label value. For a long name, labelValue returns the same hash as Cluster
// API, because Cluster API's controllers look for this value.
func labelValue(name string) string {
	if len(name) <= maxLabelLength {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // Write of a hash never fails
	return "hash_" + base64.RawURLEncoding.EncodeToString(h.Sum(nil)) + "_z"
}
