package kubecli

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/workflows/run"
)

// FindInstallation returns the name of the installation whose workers renew a Lease in the cluster. The name is empty
// if no Lease names an installation, if the Leases name several installations, or if the Leases cannot be read.
func (c Clients) FindInstallation(ctx context.Context) (name run.Installation) {
	for _, lease := range c.listWorkerLeases(ctx) {
		said := run.Installation(lease.Annotations[v1alpha1.AnnotationInstallation])
		switch {
		case said == "":
		case name != "" && said != name:
			return ""
		default:
			name = said
		}
	}
	return name
}

// listWorkerLeases returns the Leases of the workers of all installations; nil if the Leases cannot be read.
func (c Clients) listWorkerLeases(ctx context.Context) []coordinationv1.Lease {
	if c.Leases == nil {
		return nil
	}
	found, err := c.Leases.Leases(metav1.NamespaceAll).
		List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + v1alpha1.LeaseWorkers})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(found.Items, func(l coordinationv1.Lease) bool {
		return l.Name != v1alpha1.LeaseWorkers // the fake client ignores the field selector
	})
}
