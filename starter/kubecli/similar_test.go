package kubecli_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

func TestSimilarNameHint(t *testing.T) {
	machine := func(namespace, name string) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	objects := []runtime.Object{
		machine("shop", "web-1"),
		machine("shop", "db-1"),
		machine("bank", "till"),
		machine("store", "till"),
	}
	w := clitest.NewFakeBackend(objects...)
	hint := func(namespace, name string) string {
		clients, err := w.Environment().NewClients(kubecli.ClusterAccess{})
		assert.NoError(t, err)
		key := types.NamespacedName{Namespace: namespace, Name: name}
		return clients.SimilarNameHint(t.Context(), []request.Kind{request.KindMachine}, key)
	}
	assert.Equal(t, "; did you mean web-1?", hint("shop", "wbe-1"))
	assert.Equal(t, "; there is one in namespaces bank, store", hint("shop", "till"))
	assert.Equal(t, "; there is one in namespace shop", hint("bank", "db-1"))
	assert.Empty(t, hint("shop", "nothing-like-it"))

	w.MachineClient.PrependReactor("list", "machines", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == metav1.NamespaceAll, nil, assert.AnError
	})
	assert.Equal(t, "; did you mean web-1?", hint("shop", "wbe-1"), "the user may list this namespace only")
	assert.Empty(t, hint("shop", "till"))
}
