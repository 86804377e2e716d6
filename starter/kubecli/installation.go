package kubecli

import (
	"context"
	"os"
	"slices"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/process/commandline"
	"millwright/workflows/run"
)

// RegisterClusterName adds the flag --cluster-name to a set. The default is the variable CLUSTER_NAME. If the value is
// empty, a command takes the name from an object's status or from FindInstallation.
func RegisterClusterName(set *pflag.FlagSet, name *string) {
	set.StringVar(
		name,
		"cluster-name",
		os.Getenv("CLUSTER_NAME"),
		"name of the installation: the value of --cluster-name of worker and bridge; default: the name in the object's status or in the Lease millwright-worker",
	)
	commandline.MarkConnectionFlags(set, "cluster-name")
}

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
