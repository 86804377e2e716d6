package kubecli_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

func TestFindInstallationByWorkerLeases(t *testing.T) {
	lease := func(namespace, name, installation string) runtime.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Annotations: map[string]string{v1alpha1.AnnotationInstallation: installation},
		}}
	}
	for name, row := range map[string]struct {
		leases []runtime.Object
		want   run.Installation
	}{
		"one":                         {[]runtime.Object{lease("a", v1alpha1.LeaseWorkers, "prod"), lease("a", "other", "else")}, "prod"},
		"one, in two namespaces":      {[]runtime.Object{lease("a", v1alpha1.LeaseWorkers, "prod"), lease("b", v1alpha1.LeaseWorkers, "prod")}, "prod"},
		"two":                         {[]runtime.Object{lease("a", v1alpha1.LeaseWorkers, "prod"), lease("b", v1alpha1.LeaseWorkers, "test")}, ""},
		"a worker of another version": {[]runtime.Object{lease("a", v1alpha1.LeaseWorkers, "")}, ""},
		"none":                        {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clients := kubecli.Clients{Leases: kubefake.NewClientset(row.leases...).CoordinationV1()}
			assert.Equal(t, row.want, clients.FindInstallation(t.Context()))
		})
	}
	assert.Empty(t, kubecli.Clients{}.FindInstallation(t.Context()))
}
