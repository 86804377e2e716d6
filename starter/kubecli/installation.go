package kubecli

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/workflows/run"
)

// Installation returns the name of the installation whose workers renew a Lease in the cluster. The name is empty if no
// Lease names an installation, if the Leases name several installations, or if the Leases cannot be read.
func (c Clients) Installation(ctx context.Context) (name run.Installation) {
	if c.Leases == nil {
		return ""
	}
	found, err := c.Leases.Leases(metav1.NamespaceAll).
		List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + v1alpha1.LeaseWorkers})
	if err != nil {
		return ""
	}
	for _, lease := range found.Items {
		said := run.Installation(lease.Annotations[v1alpha1.AnnotationInstallation])
		switch {
		case lease.Name != v1alpha1.LeaseWorkers || said == "": // the fake client ignores the field selector
		case name != "" && said != name:
			return ""
		default:
			name = said
		}
	}
	return name
}
