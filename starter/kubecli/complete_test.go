package kubecli_test

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

func TestNamesAreCompleted(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	w := clitest.NewWorld(
		&v1alpha1.Machine{ObjectMeta: meta("web-1")}, &v1alpha1.Machine{ObjectMeta: meta("db-1")},
		&v1alpha1.MachineDeployment{ObjectMeta: meta("web")}, &v1alpha1.MachineClass{ObjectMeta: meta("small")},
		&v1alpha1.MachineSet{ObjectMeta: meta("web-5f")},
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web-2"}},
	)
	w.Cluster = kubefake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-1"}})
	offered := func(kind request.Kind, both bool, args []string, typed string) []string {
		o := &kubecli.Objects{Environment: w.Environment(), Kind: kind}
		c := &cobra.Command{}
		c.SetContext(t.Context())
		complete := o.CompleteName
		if both {
			complete = o.CompleteKindAndName
		}
		names, _ := complete(c, args, typed)
		return names
	}
	assert.Equal(t, []string{"web-1"}, offered(request.Machine, false, nil, "w"))
	assert.Equal(t, []string{"web"}, offered(request.MachineDeployment, false, nil, ""))
	assert.Equal(t, []string{"small"}, offered(kubecli.KindClass, false, nil, ""))
	assert.Empty(t, offered(request.Machine, false, []string{"web-1"}, ""), "there is one name")
	assert.Equal(t, []string{"machine/db-1", "machine/web-1"}, offered("object", true, nil, "machine/"))
	assert.Contains(t, offered("object", true, nil, ""), "machinedeployment/")
	assert.Equal(t, []string{"mcd/web"}, offered("object", true, nil, "mcd/w"), "the short name that was typed stays")
	assert.Equal(t, []string{"mcs/web-5f"}, offered("object", true, nil, "mcs/"))
	assert.Equal(t, []string{"node/n-1"}, offered("object", true, nil, "node/"))
	assert.Empty(t, offered("object", true, nil, "pod/"))

	o := &kubecli.Objects{Kind: request.Machine, Environment: kubecli.Environment{
		Clients: func(kubecli.Access) (kubecli.Clients, error) { return kubecli.Clients{}, errors.New("no kubeconfig") },
	}}
	names, _ := o.CompleteName(&cobra.Command{}, nil, "")
	assert.Empty(t, names)
}
